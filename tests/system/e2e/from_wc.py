"""A datagram is answered to whom its completion and its header name (ibv_create_ah_from_wc), over each of so many GIDs of
a device. By Debian's Python, for which pyverbs is built.

  from_wc.py COUNT
"""
import sys

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

KEY = 0x1234
context = Context(name="rnic0")
pd = PD(context)
memory = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)


class End:
    def __init__(self):
        self.cq = CQ(context, 16)
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        attr = QPAttr(port_num=1)
        attr.qkey = KEY
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap), attr)
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(memory.buf + 1024, 512, memory.lkey)]))

    def send(self, ah, number):
        wr = SendWR(num_sge=1, sg=[SGE(memory.buf, 32, memory.lkey)])
        wr.set_wr_ud(ah, number, KEY)
        self.qp.post_send(wr)

    def completed(self, opcode):
        while True:
            count, wcs = self.cq.poll(1)
            if count and wcs[0].opcode == opcode:
                assert wcs[0].status == e.IBV_WC_SUCCESS, wcs[0]
                return wcs[0]


for index in range(int(sys.argv[1])):
    gid = context.query_gid(1, index)
    asks, answers = End(), End()
    route = GlobalRoute(dgid=gid, sgid_index=index)
    asks.send(AH(pd, attr=AHAttr(gr=route, is_global=1, port_num=1)), answers.qp.qp_num)
    wc = answers.completed(e.IBV_WC_RECV)
    assert wc.src_qp == asks.qp.qp_num
    ah = AH(pd, wc=wc, grh=memory.buf + 1024, port_num=1)
    answers.send(ah, wc.src_qp)
    asks.completed(e.IBV_WC_RECV)
    print(f"GID {index} {gid}: answered")

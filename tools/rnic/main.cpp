// rnic: the one command for users. A file for each subcommand; this one reads the command line.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "control/device_options.hpp"
#include "control/nearest.hpp"
#include "port/capability.hpp"

namespace {

// What `rnic up` hands to the daemon as it stood: an --address belongs to the --port before it, and what
// stands before the first --port to all.
std::vector<std::string> words_for_daemon(int count, char** words) {
  std::vector<std::string> kept;
  bool after_up = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (!after_up) {
      after_up = word == "up";
      continue;
    }
    if (word == "--foreground" || word.rfind("--name=", 0) == 0) continue;
    if (word == "--name") {
      ++i;
      continue;
    }
    kept.push_back(word);
  }
  return kept;
}

std::string explain_ports() {
  using rnic::port::needs;
  using Kind = rnic::port::PortSpec::Kind;
  return "A port SPEC is one of:\n"
         "  loopback                          peers on this host, no wire (the default, at 127.0.1.1)\n"
         "  pair:NAME                         two devices of one daemon that name the same pair are joined\n"
         "  memif:SOCKET,role=server|client   shared memory to another daemon on this host (,peer=USER if not ours)\n"
         "  af_packet:IFACE                   any Linux interface (needs " +
         needs(Kind::af_packet) +
         ")\n"
         "  af_xdp:IFACE                      the same past the kernel, which hears nothing there any more (needs " +
         needs(Kind::af_xdp) +
         ")\n"
         "  tap:IFACE                         a new tap interface (needs " +
         needs(Kind::tap) +
         ")\n"
         "  pci:ADDRESS                       a NIC bound to vfio-pci\n"
         "  vdev:STRING                       any DPDK virtual device\n"
         "Examples:\n"
         "  rnic up\n"
         "  rnic up --port pair:a --address 127.0.1.1/24 --port pair:a --address 127.0.1.2/24\n"
         "  rnic run ib_write_bw -R\n";
}

// What of an option that there is not may have been meant, for the user; empty where `words` hold none.
// `command` is the subcommand, or rnic itself.
std::string about_unknown(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  const bool of_subcommand = command.get_parent() != nullptr;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  if (!of_subcommand)
    for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(each->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const std::string& word : words) {
    const std::string written = word.substr(0, word.find('='));
    if (of_subcommand && !written.starts_with("-")) continue;
    return "rnic" + (of_subcommand ? " " + command.get_name() : std::string()) + ": there is no " + written +
           rnic::control::did_you_mean(written, known, "") + " (see: rnic" +
           (of_subcommand ? " " + command.get_name() : std::string()) + " --help)";
  }
  return {};
}

// Where the command of `run` begins: behind `run`, its options and a `--`. What stands from there on is the command's
// as it is; CLI11 would put a `--` at its end.
struct RunWords {
  std::string unknown;  // the first of the words before it that is no option of run; empty: there is none
  std::vector<std::string> command;
};

RunWords words_of_run(const CLI::App& run, int count, char** words) {
  const std::vector<std::string> all(words + 1, words + count);
  auto word = std::find(all.begin(), all.end(), run.get_name());
  if (word != all.end()) ++word;
  for (; word != all.end() && word->starts_with("-") && *word != "--"; ++word) {
    const CLI::Option* option = run.get_option_no_throw(word->substr(0, word->find('=')));
    if (option == nullptr) return {*word, {}};
    if (option->get_items_expected_min() > 0 && word->find('=') == std::string::npos && word + 1 != all.end()) ++word;
  }
  if (word != all.end() && *word == "--") ++word;
  return {{}, {word, all.end()}};
}

constexpr const char* kDecode =
    "Without a capture, each line is a run of octets of one direction: a startup frame, FPDUs, or both.\n"
    "Examples:\n"
    "  rnic decode veth.pcapng\n"
    "  tcpdump -i eth1 -s 0 -w - tcp | rnic decode\n"
    "  echo 4d504120494420526570204672616d6540010000 | rnic decode\n"
    "  rnic decode --markers --position 512 lines.txt\n"
    "docs/decode.md describes what is printed.\n";

}  // namespace

int main(int count, char** words) {
  CLI::App app{"rnic: a software RNIC in user space. Unmodified RDMA programs over any Ethernet port."};
  app.require_subcommand(1);
  app.set_version_flag("--version", RNIC_VERSION);
  app.failure_message([](const CLI::App* top, const CLI::Error& error) {
    const auto chosen = top->get_subcommands();
    const std::string name = chosen.empty() ? "rnic" : "rnic " + chosen.front()->get_name();
    return name + ": " + error.what() + "\n" + name + " --help says more\n";
  });

  rnic::tool::UpOptions up;
  std::vector<std::string> words_of_devices;  // go to the daemon as they stand
  auto* up_command = app.add_subcommand("up", "Start a daemon, and return when it is ready");
  up_command->add_option("--name", up.name, "The daemon's name, in place of the file's; default")
      ->check(
          [](const std::string& name) { return name.empty() ? std::string("it may not be empty") : std::string(); });
  up_command->add_option("--config", up.config, "A TOML file with [[device]] tables")->check(CLI::ExistingFile);
  for (const auto& each : rnic::control::kDeviceOptions) up_command->add_option(each.name, words_of_devices, each.says);
  up_command->add_flag("--foreground", up.foreground, "Stay in the foreground, log to the terminal");
  up_command->footer(explain_ports());

  rnic::tool::RunOptions run;
  auto* run_command = app.add_subcommand("run", "Run a command over the daemon's devices");
  run_command->add_option("--name", run.name, "The daemon's name")->capture_default_str();
  run_command->add_option("--device", run.device, "Let it see only this device");
  run_command->add_flag("--fast-memory,!--plain-memory", run.fast_memory,
                        "Its registered buffers become shared memory (not together with io_uring's fixed buffers, "
                        "O_DIRECT in flight or a GPU on the same pages); --plain-memory: they do not, the default");
  run_command->add_option("command", run.command, "The command and its arguments")->required();
  run_command->prefix_command();
  run_command->positionals_at_end();

  std::string down_name = "default";
  auto* down_command = app.add_subcommand("down", "End a daemon");
  down_command->add_option("--name", down_name, "The daemon's name")->capture_default_str();

  rnic::tool::ShowOptions show;
  auto* show_command = app.add_subcommand("show", "Show what a daemon has and does");
  show_command->add_option("what", show.what, "dev, port, qp, cq, mr, mw, conn, cm or stats; all without it")
      ->check(CLI::IsMember({"dev", "port", "qp", "cq", "mr", "mw", "conn", "cm", "stats"}));
  show_command->add_option("--name", show.name, "The daemon's name")->capture_default_str();
  show_command->add_flag("--json", show.json, "As JSON");

  rnic::tool::KillOptions kill;
  auto* kill_command = app.add_subcommand("kill", "Reset a connection, whichever application has it");
  kill_command->add_option("LOCAL", kill.local, "Its address and port here, as rnic show conn has them")->required();
  kill_command->add_option("REMOTE", kill.remote, "Its peer's")->required();
  kill_command->add_option("--name", kill.name, "The daemon's name")->capture_default_str();
  kill_command->footer(
      "Its queue pair goes to Error, of which it is told, and what is posted there is flushed (on a RoCE face the\n"
      "first request fails as IBV_WC_RETRY_EXC_ERR, or the next that is posted, with ERR then); the peer gets a RST.\n"
      "Example:\n"
      "  rnic kill 10.0.0.101:7174 10.0.0.7:40312\n");

  rnic::tool::DecodeOptions decode;
  std::string decode_crc;
  auto* decode_command = app.add_subcommand("decode", "Print what is in MPA streams, a JSON object for each unit");
  decode_command->add_option("FILE", decode.file,
                             "A pcap or pcapng file, or lines of hexadecimal digits; else standard input");
  decode_command
      ->add_option("--crc", decode_crc, "Whether CRCs are in use, where no startup frame tells; on without it")
      ->check(CLI::IsMember({"on", "off"}));
  decode_command->add_flag("--markers", decode.markers, "There are markers, where no startup frame tells");
  decode_command->add_option("--position", decode.position,
                             "Where in the stream a line begins, in octets behind the startup frame");
  decode_command->add_flag("--stream", decode.one_stream, "Each line continues the one before it");
  decode_command->footer(kDecode);

  rnic::tool::CaptureOptions capture;
  auto* capture_command =
      app.add_subcommand("capture", "Write what a daemon's devices send and receive to a pcapng file");
  capture_command->add_option("FILE", capture.file, "The file; - is standard output")->required();
  capture_command->add_option("--name", capture.name, "The daemon's name")->capture_default_str();
  capture_command->add_option("--device", capture.device, "Only this device");
  capture_command->add_option("--seconds", capture.seconds, "End after so long; without it, at Ctrl-C");
  capture_command->footer(
      "Examples:\n"
      "  rnic capture rdma.pcapng\n"
      "  rnic capture --device rnic0 --seconds 5 - | rnic decode\n"
      "  rnic capture - | tshark -r - -o tcp.try_heuristic_first:TRUE --disable-heuristic rpcrdma_iwarp\n");

  std::string doctor_name = "default";
  auto* doctor_command =
      app.add_subcommand("doctor", "Check this machine: what works here, and what is missing for what");
  doctor_command->add_option("--name", doctor_name, "The daemon's name")->capture_default_str();

  // Last: subcommands inherit it.
  app.footer(explain_ports());

  const auto refuse_unknown = [&](const std::vector<std::string>& left) {
    const auto chosen = app.get_subcommands();
    const std::string why = about_unknown(chosen.empty() ? app : *chosen.front(), left);
    if (!why.empty()) std::fprintf(stderr, "%s\n", why.c_str());
    return !why.empty();
  };
  try {
    app.parse(count, words);
  } catch (const CLI::ExtrasError& error) {
    if (refuse_unknown(app.remaining(true))) return 2;
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const CLI::ParseError& error) {
    // A subcommand or a command is wanted, and what stands there is none.
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && refuse_unknown(app.remaining(true)))
      return 2;
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (*up_command) {
    up.for_daemon = words_for_daemon(count, words);
    return rnic::tool::up(up);
  }
  if (*run_command) {
    const RunWords given = words_of_run(*run_command, count, words);
    if (!given.unknown.empty()) return refuse_unknown({given.unknown}) ? 2 : 1;
    run.command = given.command;
    return rnic::tool::run(run);
  }
  if (*down_command) return rnic::tool::down(down_name);
  if (*show_command) return rnic::tool::show(show);
  if (*kill_command) return rnic::tool::kill(kill);
  if (*capture_command) return rnic::tool::capture(capture);
  if (*decode_command) {
    if (!decode_crc.empty()) decode.crc = decode_crc == "on";
    return rnic::tool::decode(decode);
  }
  return rnic::tool::doctor(doctor_name);
}

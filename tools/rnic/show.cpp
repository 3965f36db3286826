// rnic show: what a daemon has and does, as tables or as the JSON that it gave.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "client.hpp"
#include "commands.hpp"

namespace rnic::tool {
namespace {

using Json = nlohmann::ordered_json;

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const Json& part : value) text += (text.empty() ? "" : ",") + cell(part);
    return text;
  }
  return value.is_null() ? "-" : value.dump();
}

// Of the terminal; of a pipe what is usual.
std::size_t line_width() {
  constexpr std::size_t kUsual = 120;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : kUsual;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

void print_line(std::string text) {
  text.resize(text.find_last_not_of(' ') + 1);
  std::printf("%s\n", text.c_str());
}

// Objects of one kind as a table: a column for each member that the first one has.
void print_table(const std::string& title, const Json& rows) {
  if (!rows.is_array() || rows.empty()) {
    std::printf("%s: none\n", title.c_str());
    return;
  }
  std::vector<std::string> columns;
  for (const auto& [key, value] : rows.front().items())
    if (!value.is_object()) columns.push_back(key);
  std::vector<std::size_t> widths;
  for (const std::string& column : columns) {
    std::size_t width = column.size();
    for (const Json& row : rows) width = std::max(width, row.contains(column) ? cell(row[column]).size() : 1);
    widths.push_back(width);
  }
  std::printf("%s\n", title.c_str());
  std::size_t across = 1;
  for (const std::size_t width : widths) across += width + 1;
  const auto text_of = [](const Json& row, const std::string& column) {
    return row.contains(column) ? cell(row[column]) : std::string("-");
  };
  // There are few devices, and much to say of each: a line for each thing, a column for each device.
  if ((title == "dev" || title == "port") && across > line_width()) {
    std::size_t first = 0;
    for (const std::string& column : columns) first = std::max(first, column.size());
    for (const std::string& column : columns) {
      std::string text = "  " + padded(column, first);
      for (const Json& row : rows) {
        std::size_t width = 0;
        for (const std::string& each : columns) width = std::max(width, text_of(row, each).size());
        text += "  " + padded(text_of(row, column), width);
      }
      print_line(text);
    }
    return;
  }
  std::string head = " ";
  for (std::size_t i = 0; i < columns.size(); ++i) head += " " + padded(columns[i], widths[i]);
  print_line(head);
  for (const Json& row : rows) {
    std::string text = " ";
    for (std::size_t i = 0; i < columns.size(); ++i) text += " " + padded(text_of(row, columns[i]), widths[i]);
    print_line(text);
  }
}

void print_section(const std::string& title, const Json& section) {
  if (section.is_array()) {
    print_table(title, section);
    return;
  }
  std::printf("%s\n", title.c_str());
  for (const auto& [key, value] : section.items()) {
    if (value.is_object()) {
      for (const auto& [inner, number] : value.items())
        std::printf("  %-40s %s\n", (key + "." + inner).c_str(), cell(number).c_str());
    } else if (value.is_array() && !value.empty() && value.front().is_object()) {
      print_table("  " + key, value);
    } else {
      std::printf("  %-40s %s\n", key.c_str(), cell(value).c_str());
    }
  }
}

}  // namespace

int show(const ShowOptions& options) {
  Client daemon;
  if (!daemon.connect(options.name)) {
    std::fprintf(stderr, "rnic show: %s\n", daemon.why().c_str());
    return 1;
  }
  rnic_show request{};
  std::strncpy(request.what, options.what.c_str(), sizeof request.what - 1);
  rnic_handle_reply reply{};
  int memory = -1;
  const int status = daemon.ask(RNIC_SHOW, &request, sizeof request, &reply, sizeof reply, &memory);
  if (status != 0 || memory < 0) {
    std::fprintf(stderr, "rnic show: the daemon does not answer: %s\n", std::strerror(status < 0 ? -status : status));
    return 1;
  }
  std::string text(reply.handle, '\0');
  const ssize_t got = pread(memory, text.data(), text.size(), 0);
  close(memory);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  const Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    std::fprintf(stderr, "rnic show: the daemon's answer makes no sense\n");
    return 1;
  }
  if (options.json) {
    std::printf("%s\n", document.dump(2).c_str());
    return 0;
  }
  bool first = true;
  for (const auto& [title, section] : document.items()) {
    if (!first) std::printf("\n");
    first = false;
    print_section(title, section);
  }
  return 0;
}

}  // namespace rnic::tool

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "be/base/stream_network.h"

namespace be {
namespace {

constexpr uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint8_t kIpv6Loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

bool parse_port(std::string_view text, uint16_t* port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *port);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool Address::is_ipv4() const {
  return std::equal(std::begin(kMappedPrefix), std::end(kMappedPrefix), ip);
}

bool Address::is_loopback() const {
  if (is_ipv4()) return ip[12] == 127;
  return std::equal(std::begin(kIpv6Loopback), std::end(kIpv6Loopback), ip);
}

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN];
  if (is_ipv4()) {
    inet_ntop(AF_INET, ip + 12, text, sizeof(text));
    return fmt::format("{}:{}", text, port);
  }
  inet_ntop(AF_INET6, ip, text, sizeof(text));
  return fmt::format("[{}]:{}", text, port);
}

Result<Address> Address::parse(const std::string& text) {
  Address address;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos ||
      !parse_port(std::string_view(text).substr(colon + 1), &address.port)) {
    return error(Code::kInvalidArgument, "address '{}' does not end in :port (0 to 65535)", text);
  }
  const std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), address.ip) == 1) {
      return address;
    }
  } else if (inet_pton(AF_INET, host.c_str(), address.ip + 12) == 1) {
    std::copy(std::begin(kMappedPrefix), std::end(kMappedPrefix), address.ip);
    return address;
  }
  return error(Code::kInvalidArgument,
               "address '{}' is not numeric like 10.0.0.1:9000 or [fe80::1]:9000", text);
}

}  // namespace be

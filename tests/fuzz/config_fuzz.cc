// The TOML of a configuration file: refused by name, or taken; what is in effect reads back.
#include <string>
#include <string_view>

#include "be/base/config.h"
#include "be/base/log.h"
#include "tests/common/must_hold.h"

namespace {

using namespace be;

enum class Choice : uint8_t { kOne, kTwo };

struct Fields {
  uint32_t grants = 16;
  uint32_t eager_bytes = 8192;
  Nanoseconds interval = 1s;
  bool flag = false;
  std::string name = "nobody";
  std::string secret;
  Choice choice = Choice::kOne;
};

void declare(Config& config, Fields& fields) {
  config.section("engine")
      .integer("grants", &fields.grants, {1, 4096}, "open grants")
      .bytes("eager_bytes", &fields.eager_bytes, {64, 1 << 20}, "largest SEND")
      .duration("interval", &fields.interval, {1ms, 1h}, "between ticks");
  config.section("rpc.quarantine")
      .boolean("flag", &fields.flag, "whether")
      .string("name", &fields.name, "who")
      .secret("secret", &fields.secret, "what")
      .choice("choice", &fields.choice, {{"one", Choice::kOne}, {"two", Choice::kTwo}}, "which");
  config.add_profile("paper", {{"engine.eager_bytes", "4KiB"}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Fields fields;
  Config config;
  declare(config, fields);
  const Status status = config.use_text(text, "fuzz.toml");
  MUST_HOLD(fields.grants >= 1 && fields.grants <= 4096);
  MUST_HOLD(fields.eager_bytes >= 64 && fields.eager_bytes <= 1 << 20);
  MUST_HOLD(fields.interval >= 1ms && fields.interval <= 1h);
  if (!status.ok()) {
    MUST_HOLD(status.code() == Code::kInvalidArgument);
    MUST_HOLD(status.message().find("fuzz.toml") != std::string::npos);
    return 0;
  }
  Fields again;
  Config second;
  declare(second, again);
  MUST_HOLD(second.use_text(config.dump(), "dump").ok());
  MUST_HOLD(again.grants == fields.grants && again.eager_bytes == fields.eager_bytes);
  MUST_HOLD(again.interval == fields.interval && again.flag == fields.flag);
  MUST_HOLD(again.name == fields.name && again.choice == fields.choice);
  set_log_level("off").ignore();  // the key `log` may have changed it
  return 0;
}

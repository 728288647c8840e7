// The pure parts of `byteexpress perf`: frames, sizes, figures, labels, the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/device_label.h"
#include "apps/perf_figures.h"
#include "apps/perf_protocol.h"
#include "apps/perf_report.h"
#include "apps/perf_sizes.h"

namespace be::apps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

PerfGreeting some_greeting() {
  return {.role = PerfGreeting::Role::kData,
          .test = PerfTest::kBandwidth,
          .touch = false,
          .session = 0x0123456789abcdef,
          .reply_bytes = 4096};
}

TEST(PerfGreeting, IsReadAsItWasWritten) {
  const Result<PerfGreeting> read = decode_greeting(encode_greeting(some_greeting()));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->role, PerfGreeting::Role::kData);
  EXPECT_EQ(read->test, PerfTest::kBandwidth);
  EXPECT_FALSE(read->touch);
  EXPECT_EQ(read->session, 0x0123456789abcdef);
  EXPECT_EQ(read->reply_bytes, 4096u);
}

TEST(PerfGreeting, OfAnotherVersionIsRefusedNamingBoth) {
  std::vector<uint8_t> frame = encode_greeting(some_greeting());
  frame[4] = 9;
  const Status status = decode_greeting(frame).status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("version 9"), HasSubstr("we speak 1")));
}

TEST(PerfGreeting, TruncatedOrTooLongIsRefused) {
  std::vector<uint8_t> frame = encode_greeting(some_greeting());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(decode_greeting({frame.data(), size}).status().code(), Code::kProtocol) << size;
  }
  frame.push_back(0);
  EXPECT_EQ(decode_greeting(frame).status().code(), Code::kProtocol);
}

// In each byte every value: none is taken but for fields that may have it.
TEST(PerfGreeting, FieldsBeyondTheirBoundsAreRefused) {
  const std::vector<uint8_t> good = encode_greeting(some_greeting());
  for (size_t place = 0; place < good.size(); ++place) {
    for (int value = 0; value < 256; ++value) {
      std::vector<uint8_t> frame = good;
      frame[place] = static_cast<uint8_t>(value);
      const Result<PerfGreeting> read = decode_greeting(frame);
      if (!read.ok()) continue;
      EXPECT_LE(read->reply_bytes, kMaxPerfReplyBytes);
      EXPECT_GE(read->reply_bytes, 1u);
      EXPECT_EQ(encode_greeting(*read), frame);
    }
  }
  PerfGreeting greeting = some_greeting();
  greeting.reply_bytes = kMaxPerfReplyBytes + 1;
  EXPECT_THAT(decode_greeting(encode_greeting(greeting)).status().message(), HasSubstr("1048577"));
}

TEST(PerfWelcome, BringsTheServersRefusalWithItsCode) {
  EXPECT_TRUE(decode_welcome(encode_welcome(ok_status())).ok());
  const Status refused =
      decode_welcome(encode_welcome(Status(Code::kResourceExhausted, "256 clients")));
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("256 clients"));
  const std::string endless(100'000, 'x');
  EXPECT_LT(encode_welcome(Status(Code::kInternal, endless)).size(), 1000u);
  EXPECT_EQ(decode_welcome(encode_report_request()).code(), Code::kProtocol);
}

TEST(PerfReport, IsReadAsItWasWritten) {
  PerfReport report;
  report.cpu = {.user = 5ms, .system = 7us};
  report.messages = 11;
  report.bytes = 12;
  report.live_allocations = 13;
  report.registered_bytes = 14;
  report.peak_registered_bytes = 15;
  report.registrations = 16;
  report.sessions = 17;
  report.io_threads = 18;
  report.transport = TransportKind::kSoftnic;
  report.device = "softnic (software RNIC)";
  report.host = "here";
  const Result<PerfReport> read = decode_report(encode_report(report));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->cpu.total(), report.cpu.total());
  EXPECT_EQ(encode_report(*read), encode_report(report));
  EXPECT_EQ(read->transport, TransportKind::kSoftnic);
  EXPECT_EQ(read->host, "here");
}

TEST(PerfSizes, AreAListOfSizesAndDoublingRanges) {
  EXPECT_THAT(parse_sizes("32").value(), ElementsAre(32));
  EXPECT_THAT(parse_sizes("1,1KiB,3").value(), ElementsAre(1, 1024, 3));
  EXPECT_THAT(parse_sizes("64..512").value(), ElementsAre(64, 128, 256, 512));
  EXPECT_THAT(parse_sizes("100..500,1MiB").value(), ElementsAre(100, 200, 400, 500, 1 << 20));
  EXPECT_THAT(parse_sizes("7..7").value(), ElementsAre(7));
}

TEST(PerfSizes, ThatCannotBeAreNamed) {
  for (const char* text : {"", ",", "32,", "0", "x", "64..", "..64", "2GiB", "-1", "1..0"}) {
    EXPECT_EQ(parse_sizes(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(parse_sizes("512..64").status().message(), HasSubstr("'512..64' go down"));
}

PerfSample some_sample() {
  PerfSample sample;
  sample.bytes = 1'000'000;
  sample.answered = 4000;
  sample.elapsed = 2s;
  for (int i = 0; i < 99; ++i) sample.times_ns.record(1000);
  sample.times_ns.record(101'000);
  sample.client_cpu = {.user = 1s, .system = 200ms};
  sample.server_cpu = {.user = 400ms, .system = 400ms};
  return sample;
}

TEST(PerfFigures, FollowFromWhatWasCounted) {
  const PerfFigures figures = figures_of(some_sample());
  EXPECT_DOUBLE_EQ(figures.mean_us, 2);
  EXPECT_NEAR(figures.p50_us, 1, 0.02);
  EXPECT_NEAR(figures.p99_us, 1, 0.02);
  EXPECT_DOUBLE_EQ(figures.max_us, 101);
  EXPECT_DOUBLE_EQ(figures.messages_per_second, 2000);
  EXPECT_DOUBLE_EQ(figures.gigabytes_per_second, 2);
  EXPECT_DOUBLE_EQ(figures.client_cpu_us_per_message, 300);
  EXPECT_DOUBLE_EQ(figures.server_cpu_us_per_message, 200);
  EXPECT_DOUBLE_EQ(figures.system_cpu_share, 0.3);
  EXPECT_DOUBLE_EQ(figures.cpu_seconds_per_gigabyte, 0.5);
  EXPECT_DOUBLE_EQ(figures.background_gigabytes_per_second, 0);
}

TEST(PerfFigures, BytesOfTheBackgroundShareTheCpuTime) {
  PerfSample sample = some_sample();
  sample.background_bytes = 4'000'000'000;
  const PerfFigures figures = figures_of(sample);
  EXPECT_DOUBLE_EQ(figures.gigabytes_per_second, 2);
  EXPECT_DOUBLE_EQ(figures.background_gigabytes_per_second, 2);
  EXPECT_DOUBLE_EQ(figures.cpu_seconds_per_gigabyte, 0.25);
}

TEST(PerfFigures, MedianIsTakenOfEachFigureByItself) {
  PerfFigures a{.mean_us = 1, .p99_us = 30};
  PerfFigures b{.mean_us = 3, .p99_us = 10};
  PerfFigures c{.mean_us = 2, .p99_us = 20};
  EXPECT_DOUBLE_EQ(median_of({a}).mean_us, 1);
  EXPECT_DOUBLE_EQ(median_of({a, b, c}).mean_us, 2);
  EXPECT_DOUBLE_EQ(median_of({a, b, c}).p99_us, 20);
  EXPECT_DOUBLE_EQ(median_of({b, a}).mean_us, 2);
  EXPECT_DOUBLE_EQ(median_of({a, b, c, {.mean_us = 10}}).mean_us, 2.5);
}

TEST(DeviceLabel, NeverCallsSoftwareANic) {
  const std::string sysfs =
      std::filesystem::temp_directory_path() / ("be_label_" + std::to_string(::getpid()));
  std::filesystem::create_directories(sysfs + "/mlx5_0");
  std::filesystem::create_directories(sysfs + "/rxe0");
  std::ofstream(sysfs + "/rxe0/parent") << "eth0\n";
  EXPECT_EQ(device_label(TransportKind::kTcp, ""), "kernel TCP");
  EXPECT_EQ(device_label(TransportKind::kSoftnic, "softnic"), "softnic (software RNIC)");
  EXPECT_EQ(device_label(TransportKind::kHardware, "mlx5_0", sysfs), "mlx5_0 (RDMA device)");
  EXPECT_EQ(device_label(TransportKind::kHardware, "rxe0", sysfs),
            "rxe0 (Soft-RoCE, kernel software)");
  std::filesystem::remove_all(sysfs);
}

TEST(PerfTable, TellsWhatWasMeasuredAndHow) {
  PerfPlan plan;
  plan.server = "10.0.0.1:9100";
  plan.test = PerfTest::kRate;
  plan.outstanding = 64;
  NodeOptions options;
  options.engine.send_window_bytes = 64 << 10;
  PerfResult result;
  result.transport = TransportKind::kSoftnic;
  result.device = "softnic (software RNIC)";
  result.server.host = "there";
  result.fragment_bytes = 4096;
  result.sizes = {{1'000'000, {figures_of(some_sample())}}};
  const std::string table = perf_table(plan, options, result);
  EXPECT_THAT(table, AllOf(HasSubstr("rate over softnic (software RNIC), to 10.0.0.1:9100 (there)"),
                           HasSubstr("1 thread, 1 socket on each, 64 outstanding"),
                           HasSubstr("fragment 4KiB, window 64KiB, send queue 32"),
                           HasSubstr("median of 3 repetitions of 1s")));
  EXPECT_THAT(table, HasSubstr("   1000000      2.00"));
  const auto json = perf_json(plan, options, result, "settings");
  EXPECT_EQ(json["sizes"][0]["median"]["gigabytes_per_second"], 2.0);
  EXPECT_EQ(json["in_effect"]["fragment_bytes"], 4096);
}

}  // namespace
}  // namespace be::apps

#include "be/verbs/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace be {
namespace {

using ::testing::HasSubstr;

TEST(VerbsErrors, EveryCompletionStatusHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    const std::string_view name = wc_status_name(static_cast<ibv_wc_status>(status));
    EXPECT_TRUE(name.starts_with("IBV_WC_")) << status;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(wc_status_name(IBV_WC_RNR_RETRY_EXC_ERR), "IBV_WC_RNR_RETRY_EXC_ERR");
}

TEST(VerbsErrors, ValuesThatDoNotExistAreNamedUnknown) {
  EXPECT_EQ(wc_status_name(static_cast<ibv_wc_status>(31)), "unknown ibv_wc_status");
  EXPECT_EQ(wc_opcode_name(IBV_WC_TSO), "unknown ibv_wc_opcode");
  EXPECT_EQ(qp_state_name(IBV_QPS_UNKNOWN), "unknown ibv_qp_state");
}

TEST(VerbsErrors, OpcodesAndStatesCarryTheirSpecifiedNames) {
  EXPECT_EQ(wc_opcode_name(IBV_WC_RECV_RDMA_WITH_IMM), "IBV_WC_RECV_RDMA_WITH_IMM");
  EXPECT_EQ(qp_state_name(IBV_QPS_RTS), "RTS");
}

TEST(VerbsErrors, AFailedVerbNamesVerbErrnoAndObject) {
  const Status status = verb_error("ibv_post_send", ENOMEM, "QP 17 to 10.0.0.2:9000");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("ibv_post_send failed"));
  EXPECT_THAT(status.message(), HasSubstr("ENOMEM"));
  EXPECT_THAT(status.message(), HasSubstr("QP 17 to 10.0.0.2:9000"));
}

TEST(VerbsErrors, ABadCompletionNamesStatusVendorCodeQueuePairAndPeer) {
  ibv_wc completion{};
  completion.status = IBV_WC_REM_ACCESS_ERR;
  completion.vendor_err = 0x88;
  completion.qp_num = 17;
  const Status status = completion_error(completion, "10.0.0.2:9000");
  EXPECT_EQ(status.code(), Code::kDeviceError);
  EXPECT_THAT(status.message(), HasSubstr("IBV_WC_REM_ACCESS_ERR"));
  EXPECT_THAT(status.message(), HasSubstr("0x88"));
  EXPECT_THAT(status.message(), HasSubstr("QP 17 to 10.0.0.2:9000"));
}

TEST(VerbsErrors, APeerThatNoLongerAnswersIsUnavailable) {
  for (ibv_wc_status gone : {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR}) {
    ibv_wc completion{};
    completion.status = gone;
    EXPECT_EQ(completion_error(completion, "peer").code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace be

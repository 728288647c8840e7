// Events of a device that is made up: whom they concern, and who hears of them.
#include "be/verbs/hardware/event_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

#include "be/verbs/hardware/event_inbox.h"

namespace be::hardware {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = DeviceEvent::Kind;
using namespace std::chrono_literals;

bool readable(int fd) {
  pollfd waiting = {fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

ibv_async_event event_of(ibv_event_type type) { return {.element = {}, .event_type = type}; }

ibv_async_event qp_event(ibv_event_type type, ibv_qp* qp) {
  ibv_async_event event = event_of(type);
  event.element.qp = qp;
  return event;
}

ibv_async_event cq_event(ibv_cq* cq) {
  ibv_async_event event = event_of(IBV_EVENT_CQ_ERR);
  event.element.cq = cq;
  return event;
}

ibv_async_event srq_event(ibv_srq* srq) {
  ibv_async_event event = event_of(IBV_EVENT_SRQ_ERR);
  event.element.srq = srq;
  return event;
}

// Two I/O threads with a completion queue each; three queue pairs, of which the first and the third
// share a receive queue.
class Events : public ::testing::Test {
 protected:
  Events() {
    for (int i = 0; i < 2; ++i) {
      inboxes_[i] = EventInbox::create().value();
      router_.add_inbox(inboxes_[i].get());
      router_.add_cq(&cqs_[i], inboxes_[i].get());
    }
    router_.add_qp(&qps_[0], {.send_cq = &cqs_[0], .recv_cq = &cqs_[0], .srq = &srq_});
    router_.add_qp(&qps_[1], {.send_cq = &cqs_[0], .recv_cq = &cqs_[0]});
    router_.add_qp(&qps_[2], {.send_cq = &cqs_[1], .recv_cq = &cqs_[1], .srq = &srq_});
  }

  // What the thread of inbox `i` hears; it is woken for that, and not for nothing.
  std::vector<DeviceEvent> heard(int i) {
    std::vector<DeviceEvent> events;
    const bool awake = readable(inboxes_[i]->fd());
    router_.take(*inboxes_[i], events);
    EXPECT_EQ(awake, !events.empty());
    EXPECT_FALSE(readable(inboxes_[i]->fd()));
    return events;
  }

  std::vector<const ibv_qp*> fatal(int i) {
    std::vector<const ibv_qp*> qps;
    for (const DeviceEvent& event : heard(i)) {
      EXPECT_EQ(event.kind, Kind::kQpFatal);
      EXPECT_EQ(event.status.code(), Code::kDeviceError);
      EXPECT_THAT(event.status.message(), HasSubstr("device mlx5_0 reports"));
      qps.push_back(event.qp);
    }
    return qps;
  }

  EventRouter router_{"mlx5_0"};
  std::unique_ptr<EventInbox> inboxes_[2];
  ibv_cq cqs_[2] = {};
  ibv_srq srq_ = {};
  ibv_qp qps_[3] = {};
};

TEST_F(Events, OfAQueuePairIsHeardByItsThreadAlone) {
  for (const ibv_event_type type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_PATH_MIG_ERR}) {
    router_.route(qp_event(type, &qps_[2]));
    EXPECT_THAT(heard(0), IsEmpty());
    EXPECT_THAT(fatal(1), ElementsAre(&qps_[2]));
  }
  router_.route(qp_event(IBV_EVENT_QP_LAST_WQE_REACHED, &qps_[0]));
  const std::vector<DeviceEvent> last = heard(0);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].kind, Kind::kLastWqeReached);
  EXPECT_EQ(last[0].qp, &qps_[0]);
}

TEST_F(Events, ABrokenCompletionQueueEndsItsQueuePairsAndTakesNoNewOne) {
  router_.route(cq_event(&cqs_[0]));
  EXPECT_THAT(fatal(0), UnorderedElementsAre(&qps_[0], &qps_[1]));
  EXPECT_THAT(heard(1), IsEmpty());
  EXPECT_EQ(router_.check(&cqs_[0], &cqs_[0], nullptr).code(), Code::kDeviceError);
  EXPECT_EQ(router_.check(&cqs_[1], &cqs_[0], nullptr).code(), Code::kDeviceError);
  EXPECT_TRUE(router_.check(&cqs_[1], &cqs_[1], &srq_).ok());
  router_.remove_cq(&cqs_[0]);
  EXPECT_TRUE(router_.check(&cqs_[0], &cqs_[0], nullptr).ok()) << "another at the same address";
}

TEST_F(Events, ABrokenSharedReceiveQueueEndsItsQueuePairsOfAllThreads) {
  router_.route(srq_event(&srq_));
  EXPECT_THAT(fatal(0), ElementsAre(&qps_[0]));
  EXPECT_THAT(fatal(1), ElementsAre(&qps_[2]));
  EXPECT_FALSE(router_.check(&cqs_[1], &cqs_[1], &srq_).ok());
  EXPECT_TRUE(router_.check(&cqs_[1], &cqs_[1], nullptr).ok());
  router_.remove_srq(&srq_);
  EXPECT_TRUE(router_.check(&cqs_[1], &cqs_[1], &srq_).ok());
}

TEST_F(Events, APortThatGoesDownEndsNothing) {
  for (const ibv_event_type type :
       {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE}) {
    ibv_async_event event = event_of(type);
    event.element.port_num = 1;
    router_.route(event);
  }
  EXPECT_THAT(heard(0), IsEmpty());
  EXPECT_THAT(heard(1), IsEmpty());
  EXPECT_TRUE(router_.check(&cqs_[0], &cqs_[0], nullptr).ok());
}

TEST_F(Events, ALostDeviceIsHeardOfByAllOnceAndTakesNothingNew) {
  router_.route(event_of(IBV_EVENT_DEVICE_FATAL));
  router_.lose_device(error(Code::kDeviceError, "device mlx5_0 is gone"));
  for (int i = 0; i < 2; ++i) {
    const std::vector<DeviceEvent> events = heard(i);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Kind::kDeviceRemoved);
    EXPECT_EQ(events[0].status.code(), Code::kDeviceError);
  }
  EXPECT_FALSE(router_.check(&cqs_[0], &cqs_[0], nullptr).ok());
}

TEST_F(Events, ALostDeviceIsTakenApartASecondLater) {
  const auto now = EventRouter::Clock::now();
  EXPECT_FALSE(router_.long_lost(now + 1h));
  router_.route(event_of(IBV_EVENT_DEVICE_FATAL));
  EXPECT_FALSE(router_.long_lost(now));
  EXPECT_TRUE(router_.long_lost(EventRouter::Clock::now() + 1s));
}

TEST_F(Events, TheDescriptorsOfALostDeviceKeepNobodyAwake) {
  int device[2];
  ASSERT_EQ(::pipe(device), 0);
  ASSERT_TRUE(inboxes_[0]->watch(device[0]).ok());
  EXPECT_FALSE(readable(inboxes_[0]->fd()));
  ::close(device[1]);  // readable from now on
  EXPECT_TRUE(readable(inboxes_[0]->fd()));
  router_.route(event_of(IBV_EVENT_DEVICE_FATAL));
  EXPECT_EQ(heard(0).size(), 1u);
  ::close(device[0]);
}

TEST_F(Events, OfAQueuePairThatIsBeingDestroyedAreDropped) {
  router_.post_connected(&qps_[1]);
  router_.route(qp_event(IBV_EVENT_QP_FATAL, &qps_[1]));
  router_.post_connected(&qps_[0]);
  const EventRouter::Member member = router_.remove_qp(&qps_[1]);
  EXPECT_EQ(member.recv_cq, &cqs_[0]);
  router_.route(qp_event(IBV_EVENT_QP_FATAL, &qps_[1]));
  const std::vector<DeviceEvent> left = heard(0);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].qp, &qps_[0]);
  router_.remove_cq(&cqs_[1]);
  router_.route(cq_event(&cqs_[1]));
  EXPECT_THAT(heard(1), IsEmpty());
}

TEST_F(Events, OfACompletionQueueWithoutAThreadAreDropped) {
  ibv_cq alone{};
  ibv_qp qp{};
  router_.add_cq(&alone, nullptr);
  router_.add_qp(&qp, {.send_cq = &alone, .recv_cq = &alone});
  router_.route(qp_event(IBV_EVENT_QP_FATAL, &qp));
  router_.post_connected(&qp);
  EXPECT_THAT(heard(0), IsEmpty());
  EXPECT_THAT(heard(1), IsEmpty());
}

}  // namespace
}  // namespace be::hardware

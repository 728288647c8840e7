// TaskInbox: what other threads hand to an I/O thread.
//
//   push (any thread)  ->  newest -> ... -> oldest  ->  take_all (owner), oldest first
//
// A push is one allocation and one compare-and-swap; taking is one exchange for the whole batch:
// nobody waits for anybody. Tasks of one thread run in the order in which it pushed them.
//
// Sleep: the owner says about_to_sleep(), and sleeps only on true; the push that finds it
// sleeping tells its caller to wake the owner, so a batch costs one wake. Both sides write their
// flag before they read the other's (sequentially consistent), so no task is slept over.
//
// After close() every push refuses, and its task is destroyed by the pusher.
#pragma once

#include <atomic>
#include <utility>

#include "be/base/task.h"

namespace be {

class TaskInbox {
 public:
  TaskInbox() = default;
  TaskInbox(const TaskInbox&) = delete;
  TaskInbox& operator=(const TaskInbox&) = delete;
  ~TaskInbox() { free_list(close()); }

  enum class Pushed { kClosed, kQueued, kQueuedAndWakeOwner };

  Pushed push(Task task) {
    Node* node = new Node{std::move(task), nullptr};
    Node* head = head_.load();
    do {
      if (head == closed()) {
        delete node;
        return Pushed::kClosed;
      }
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node));
    return sleeping_.exchange(false) ? Pushed::kQueuedAndWakeOwner : Pushed::kQueued;
  }

  // Owner: runs what is there now (not what is pushed meanwhile). False: nothing was.
  bool run_all() {
    const Node* head = head_.load(std::memory_order_relaxed);
    if (head == nullptr || head == closed()) return false;
    Node* node = reversed(head_.exchange(nullptr));
    while (node != nullptr) {
      node->task();
      delete std::exchange(node, node->next);
    }
    return true;
  }

  // Owner. False: tasks have come, do not sleep.
  bool about_to_sleep() {
    sleeping_.store(true);
    if (head_.load() == nullptr) return true;
    sleeping_.store(false);
    return false;
  }
  void awake() { sleeping_.store(false, std::memory_order_relaxed); }

  // In a forked child, where the owner is not: every push refuses. What was queued is the
  // parent's, and is not touched.
  void abandon() { head_.store(closed()); }

  // Owner: no more pushes. What was still queued is run, so that nobody waits for it in vain.
  void close_and_run() {
    Node* node = close();
    while (node != nullptr) {
      node->task();
      delete std::exchange(node, node->next);
    }
  }

 private:
  struct Node {
    Task task;
    Node* next;
  };

  static Node* closed() {
    static Node mark{Task(), nullptr};
    return &mark;
  }

  static Node* reversed(Node* newest) {
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

  static void free_list(Node* node) {
    while (node != nullptr) delete std::exchange(node, node->next);
  }

  Node* close() {
    Node* list = head_.exchange(closed());
    return list == closed() ? nullptr : reversed(list);
  }

  std::atomic<Node*> head_ = nullptr;
  std::atomic<bool> sleeping_ = false;
};

}  // namespace be

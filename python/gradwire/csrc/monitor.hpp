// A barrier that names the missing ranks. It uses PyTorch's store and not the data plane, so it
// works when the data plane is stuck.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace gradwire {

class MonitoredBarrier {
 public:
  using Milliseconds = std::chrono::milliseconds;

  enum class Report { kFirst, kAll };  // which of the missing ranks rank 0 waits for and names

  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  // Rank 0 waits for all other ranks, and they wait for the verdict of rank 0.
  void pass(Milliseconds timeout, Report report) {
    const Round round{std::to_string(rounds_++), timeout, Clock::now() + timeout};
    if (rank_ == 0) {
      lead(round, report);
    } else {
      follow(round);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Round {
    std::string number;
    Milliseconds timeout;
    Clock::time_point deadline;
  };

  void lead(const Round& round, Report report) {
    TORCH_CHECK(round.timeout.count() > 0 || size_ == 1,
                "gradwire: [Rank 0]: Rank 0 timed out in monitoredBarrier after ",
                round.timeout.count(), " ms. Give it more than that.");
    std::vector<int> missing;
    for (int rank = 1; rank < size_; ++rank) {
      if (appears(arrival(round, rank), round.deadline)) continue;
      missing.push_back(rank);
      if (report == Report::kFirst) break;
    }
    const auto text = missing.empty() ? "" : failure(round, missing);
    store_->set(verdict(round), text);
    TORCH_CHECK(text.empty(), text);
    for (int rank = 1; rank < size_; ++rank) store_->deleteKey(arrival(round, rank));
    // A rank that has reached this round has read the verdict of the last one.
    store_->deleteKey(verdict({last_, {}, {}}));
    last_ = round.number;
  }

  void follow(const Round& round) {
    store_->set(arrival(round, rank_), "here");
    // Rank 0 may start its timeout later, and its verdict must still arrive within this rank's.
    const bool said = appears(verdict(round), round.deadline);
    const auto text = said ? store_->get_to_str(verdict(round))
                           : "nothing came from it within " +
                                 std::to_string(round.timeout.count()) + " ms";
    TORCH_CHECK(text.empty(), "gradwire: [Rank ", rank_, "]: Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0: ",
                text);
  }

  // Polls instead of waiting inside the store, since other threads share its connection.
  bool appears(const std::string& key, Clock::time_point deadline) {
    Milliseconds pause{1};
    while (!store_->check({key})) {
      const auto left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) return false;
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, left));
      pause = std::min(pause * 2, kLongestPause);
    }
    return true;
  }

  static std::string failure(const Round& round, const std::vector<int>& missing) {
    std::string ranks;
    for (const auto rank : missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    return "gradwire: [Rank 0]: Rank" + std::string(missing.size() > 1 ? "s " : " ") + ranks +
           " failed to pass monitoredBarrier in " + std::to_string(round.timeout.count()) + " ms";
  }

  static std::string arrival(const Round& round, int rank) {
    return "gradwire/monitored/" + round.number + "/arrived/" + std::to_string(rank);
  }

  static std::string verdict(const Round& round) {
    return "gradwire/monitored/" + round.number + "/verdict";
  }

  static constexpr Milliseconds kLongestPause{20};

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::atomic<uint64_t> rounds_{0};
  std::string last_ = "none";
};

}  // namespace gradwire

// Carries the packets of two interfaces to each other, late, and loses some:
// `carrier DELAY LOSS RATE BUFFER`, the delay in seconds, the share that is lost, and the rate in
// bytes per second of a link each way with a buffer of so many bytes, which drops what does not
// fit; a rate of 0 is no such link. Standard input and output are the interfaces (TUN), as
// benches/far.py opens them.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <optional>
#include <random>
#include <vector>

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kPacketBytes = 1 << 16;
// Packets of one interface in a row, while others may be due.
constexpr int kInRow = 256;

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// A link that sends one packet after another.
class Link {
 public:
  Link(double rate, double buffer) : rate_(rate), buffer_(buffer) {}

  // When a packet has left it that comes now, or nothing if the buffer has no room for it.
  std::optional<Clock::time_point> leaves(size_t bytes) {
    const auto now = Clock::now();
    if (rate_ == 0) return now;
    free_ = std::max(free_, now);
    const double waiting = std::chrono::duration<double>(free_ - now).count() * rate_;
    if (waiting + bytes > buffer_) return std::nullopt;
    free_ += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(bytes / rate_));
    return free_;
  }

 private:
  double rate_;
  double buffer_;
  Clock::time_point free_{};
};

// Waits until an interface has a packet, or the first one that waits is due.
void wait(const std::array<std::deque<Packet>, 2>& waiting) {
  std::array<pollfd, 2> ends{pollfd{0, POLLIN, 0}, pollfd{1, POLLIN, 0}};
  auto due = Clock::time_point::max();
  for (const auto& way : waiting) {
    if (!way.empty()) due = std::min(due, way.front().due);
  }
  timespec left{};
  const bool is_idle = due == Clock::time_point::max();
  if (!is_idle) {
    const auto until = std::max(due - Clock::now(), Clock::duration::zero());
    const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(until).count();
    left = {nanos / 1'000'000'000, nanos % 1'000'000'000};
  }
  ppoll(ends.data(), ends.size(), is_idle ? nullptr : &left, nullptr);
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  const std::chrono::duration<double> seconds(std::atof(words[1]));
  const auto delay = std::chrono::duration_cast<Clock::duration>(seconds);
  std::bernoulli_distribution lost(std::atof(words[2]));
  std::mt19937 draws(1);
  const double rate = std::atof(words[3]);
  const double buffer = std::atof(words[4]);
  std::array<Link, 2> links{Link(rate, buffer), Link(rate, buffer)};
  std::array<std::deque<Packet>, 2> waiting;
  std::vector<char> room(kPacketBytes);
  for (const int end : {0, 1}) fcntl(end, F_SETFL, O_NONBLOCK);
  for (;;) {
    wait(waiting);
    for (const int end : {0, 1}) {
      for (int turn = 0; turn < kInRow; ++turn) {
        const ssize_t bytes = read(end, room.data(), room.size());
        if (bytes <= 0) break;
        if (lost(draws)) continue;
        const auto leaves = links[end].leaves(bytes);
        if (!leaves) continue;
        waiting[end].push_back({*leaves + delay, {room.data(), room.data() + bytes}});
      }
    }
    for (const int end : {0, 1}) {
      auto& way = waiting[end];
      for (; !way.empty() && way.front().due <= Clock::now(); way.pop_front()) {
        const auto& bytes = way.front().bytes;
        // A full interface drops the packet, as a router would.
        [[maybe_unused]] const auto sent = write(1 - end, bytes.data(), bytes.size());
      }
    }
  }
}

// Carries the packets of two interfaces to each other, late, and loses some: `carrier DELAY LOSS`,
// the delay in seconds and the share that is lost. Standard input and output are the interfaces
// (TUN), as benches/far.py opens them.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kPacketBytes = 1 << 16;
// Packets of one interface in a row, while others may be due.
constexpr int kInRow = 256;

struct Packet {
  Clock::time_point due;
  int to;
  std::vector<char> bytes;
};

// Waits until an interface has a packet, or the first one that waits is due.
void wait(const std::deque<Packet>& waiting) {
  std::array<pollfd, 2> ends{pollfd{0, POLLIN, 0}, pollfd{1, POLLIN, 0}};
  timespec left{};
  if (!waiting.empty()) {
    const auto until = std::max(waiting.front().due - Clock::now(), Clock::duration::zero());
    const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(until).count();
    left = {nanos / 1'000'000'000, nanos % 1'000'000'000};
  }
  ppoll(ends.data(), ends.size(), waiting.empty() ? nullptr : &left, nullptr);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const std::chrono::duration<double> seconds(std::atof(words[1]));
  const auto delay = std::chrono::duration_cast<Clock::duration>(seconds);
  std::bernoulli_distribution lost(std::atof(words[2]));
  std::mt19937 draws(1);
  std::deque<Packet> waiting;
  std::vector<char> room(kPacketBytes);
  for (const int end : {0, 1}) fcntl(end, F_SETFL, O_NONBLOCK);
  for (;;) {
    wait(waiting);
    for (const int end : {0, 1}) {
      for (int turn = 0; turn < kInRow; ++turn) {
        const ssize_t bytes = read(end, room.data(), room.size());
        if (bytes <= 0) break;
        if (lost(draws)) continue;
        waiting.push_back({Clock::now() + delay, 1 - end, {room.data(), room.data() + bytes}});
      }
    }
    for (; !waiting.empty() && waiting.front().due <= Clock::now(); waiting.pop_front()) {
      const auto& bytes = waiting.front().bytes;
      // A full interface drops the packet, as a router would.
      [[maybe_unused]] const auto sent = write(waiting.front().to, bytes.data(), bytes.size());
    }
  }
}

// report/message_waits.cpp — see message_waits.hpp.
//
// Operations of a whole group come in the same order on all of its ranks, so that the
// n-th of one is the n-th of all: one maximum over ranks of a list of beginnings says
// when the last rank came to each. Messages between two ranks are told by their senders,
// and the n-th of a channel from one rank is the n-th that the other receives from there.
// Where a rank had no room for all it recorded, the first of all ranks are compared.
#include "report/message_waits.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace trireme::report {

namespace {

using comm::MessageTime;

struct Sent {
  double to = 0.0, channel = 0.0, begin = 0.0;
};

// The part of a wait from `begin` to `end` that was before `arrival`, and the rest.
MessageWaits around(double arrival, double begin, double end) {
  const double skew = std::clamp(arrival - begin, 0.0, end - begin);
  return {.skew = skew, .transfer = end - begin - skew, .bytes = 0.0};
}

MessageWaits waits_of(const MessageTime& time, double arrival, const ClockReading& before,
                      const ClockReading& after) {
  const auto reference = [&](MessageTime::Time at) {
    return reference_time(seconds_of(at), before, after);
  };
  MessageWaits waits = around(arrival, reference(time.begin), reference(time.begun));
  waits += around(arrival, reference(time.wait), reference(time.end));
  return waits;
}

}  // namespace

MessageWaits split_waits(comm::Communicator& group, const comm::MessageTimes& times,
                         const ClockReading& before, const ClockReading& after) {
  const auto begin_of = [&](const MessageTime& time) {
    return reference_time(seconds_of(time.begin), before, after);
  };
  std::vector<const MessageTime*> together;
  std::vector<double> last;
  std::string sent;
  for (const MessageTime& time : times.all()) {
    if (time.peer < 0) {
      together.push_back(&time);
      last.push_back(begin_of(time));
    } else if (time.sends) {
      const Sent one{static_cast<double>(time.peer), static_cast<double>(time.channel),
                     begin_of(time)};
      sent.append(reinterpret_cast<const char*>(&one), sizeof one);
    }
  }
  const std::int64_t count =
      group.all_reduce(static_cast<std::int64_t>(last.size()), comm::Op::min);
  last.resize(static_cast<std::size_t>(count));
  group.all_reduce(last, comm::Op::max);
  MessageWaits waits;
  for (const MessageTime& time : times.all()) {
    waits.bytes += static_cast<double>(time.bytes);
  }
  for (std::size_t i = 0; i < last.size(); ++i) {
    waits += waits_of(*together[i], last[i], before, after);
  }
  const std::vector<std::string> all = group.gather(sent);
  // When the messages to this rank were begun, by their sender and channel.
  std::map<std::tuple<int, int>, std::vector<double>> begun;
  for (std::size_t from = 0; from < all.size(); ++from) {
    for (std::size_t at = 0; at + sizeof(Sent) <= all[from].size(); at += sizeof(Sent)) {
      Sent one;
      std::memcpy(&one, all[from].data() + at, sizeof one);
      if (static_cast<int>(one.to) != group.rank()) continue;
      begun[{static_cast<int>(from), static_cast<int>(one.channel)}].push_back(one.begin);
    }
  }
  std::map<std::tuple<int, int>, std::size_t> seen;
  for (const MessageTime& time : times.all()) {
    if (time.peer < 0) continue;
    double arrival = begin_of(time);  // a sender waits for nobody's beginning
    if (!time.sends) {
      const std::tuple<int, int> key{time.peer, time.channel};
      const std::vector<double>& of = begun[key];
      const std::size_t n = seen[key]++;
      if (n >= of.size()) continue;
      arrival = of[n];
    }
    waits += waits_of(time, arrival, before, after);
  }
  return waits;
}

}  // namespace trireme::report

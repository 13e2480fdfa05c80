// report/site_messages.cpp — see site_messages.hpp.
//
// Ranks have different sites (the first stage of a pipeline alone has an embedding), so
// each sends what it has as text, which rank 0 adds up by name.
#include "report/site_messages.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/tally.hpp"
#include "io/json.hpp"

namespace trireme::report {

namespace {

using SiteJson = nlohmann::json;

std::string text_of_sites(const comm::ProcessGroups& groups) {
  SiteJson sites = SiteJson::array();
  for (const comm::Group* group : groups.all()) {
    for (const MessageTally& sent : group->sent().messages()) {
      sites.push_back({sent.axis, sent.site, sent.operation, sent.calls, sent.bytes});
    }
  }
  return sites.dump();
}

}  // namespace

std::vector<SiteMessages> messages_by_site(const comm::ProcessGroups& groups) {
  const std::vector<std::string> all =
      groups.world->gather_to_first(text_of_sites(groups));
  std::map<std::tuple<std::string, std::string, std::string>, SiteMessages> by_name;
  for (const std::string& text : all) {
    for (const SiteJson& site : io::parse_json<SiteJson>(text)) {
      SiteMessages& sum = by_name[{site[0], site[1], site[2]}];
      ++sum.ranks;
      sum.calls += site[3].get<double>();
      sum.bytes += site[4].get<double>();
    }
  }
  std::vector<SiteMessages> sites;
  for (auto& [name, sum] : by_name) {
    std::tie(sum.axis, sum.site, sum.operation) = name;
    sites.push_back(std::move(sum));
  }
  std::ranges::stable_sort(sites, [](const SiteMessages& a, const SiteMessages& b) {
    return a.axis != b.axis ? a.axis < b.axis : a.bytes > b.bytes;
  });
  return sites;
}

}  // namespace trireme::report

#include "../ops/community_order.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace calirare {
namespace {

// Groups of nodes that grow by joining. A group is named by its root, the one node that has joined no other.
class Groups {
 public:
  Groups(const int64_t* indptr, const int32_t* indices, int64_t n)
      : indptr_(indptr),
        indices_(indices),
        joined_(n),
        first_member_(n, -1),
        next_member_(n, -1),
        begin_(n, 0),
        end_(n, 0),
        weight_(n, 0),
        degree_(n) {
    std::iota(joined_.begin(), joined_.end(), 0);
    for (int64_t v = 0; v < n; ++v) degree_[v] = double(indptr[v + 1] - indptr[v]);
  }

  bool is_root(int32_t v) const { return joined_[v] == v; }
  int32_t first_member(int32_t v) const { return first_member_[v]; }
  int32_t next_member(int32_t v) const { return next_member_[v]; }

  // Lets the group of root v join the neighbouring group that gains the most modularity, if any gains. Returns the
  // number of edges it looked at.
  int64_t join(int32_t v, double total) {
    const int64_t visits = gather(v);
    double most = 0;
    int32_t best = -1;
    begin_[v] = int64_t(links_.size());
    for (const int32_t group : touched_) {
      const double gain = weight_[group] - degree_[v] * degree_[group] / total;
      if (gain > most) {
        most = gain;
        best = group;
      }
      links_.push_back({group, weight_[group]});
      weight_[group] = 0;
    }
    end_[v] = int64_t(links_.size());
    if (best < 0) return visits;
    joined_[v] = best;
    degree_[best] += degree_[v];
    next_member_[v] = first_member_[best];
    first_member_[best] = v;
    return visits;
  }

 private:
  struct Link {
    int32_t to;
    float weight;  // edges to that group, exact up to 2^24
  };

  int32_t root_of(int32_t v) {
    while (joined_[v] != v) v = joined_[v] = joined_[joined_[v]];
    return v;
  }

  void add(int32_t v, int32_t to, float weight) {
    const int32_t group = root_of(to);
    if (group == v) return;
    if (weight_[group] == 0) touched_.push_back(group);
    weight_[group] += weight;
  }

  // Sums the edges of v and the links of the groups that joined it by the group they lead to now.
  int64_t gather(int32_t v) {
    touched_.clear();
    int64_t visits = indptr_[v + 1] - indptr_[v];
    for (int64_t e = indptr_[v]; e < indptr_[v + 1]; ++e) add(v, indices_[e], 1);
    for (int32_t member = first_member_[v]; member >= 0; member = next_member_[member]) {
      visits += end_[member] - begin_[member];
      for (int64_t l = begin_[member]; l < end_[member]; ++l) add(v, links_[l].to, links_[l].weight);
    }
    return visits;
  }

  const int64_t* indptr_;
  const int32_t* indices_;
  std::vector<int32_t> joined_;                      // towards the root; shortened on the way
  std::vector<int32_t> first_member_, next_member_;  // the groups that joined a node, latest first
  std::vector<int64_t> begin_, end_;                 // a group's links when it was asked to join
  std::vector<Link> links_;
  std::vector<int32_t> touched_;
  std::vector<float> weight_;
  std::vector<double> degree_;
};

std::vector<int32_t> by_degree(const int64_t* indptr, int64_t n) {
  int64_t most = 0;
  for (int64_t v = 0; v < n; ++v) most = std::max(most, indptr[v + 1] - indptr[v]);
  std::vector<int64_t> place(most + 2, 0);
  for (int64_t v = 0; v < n; ++v) ++place[indptr[v + 1] - indptr[v] + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<int32_t> nodes(n);
  for (int64_t v = 0; v < n; ++v) nodes[place[indptr[v + 1] - indptr[v]]++] = int32_t(v);
  return nodes;
}

}  // namespace

void community_order(const int64_t* indptr, const int32_t* indices, int64_t n, int64_t most_visits, int64_t* order) {
  Groups groups(indptr, indices, n);
  int64_t visits = 0;
  for (const int32_t v : by_degree(indptr, n)) {
    if (visits > most_visits) break;
    visits += groups.join(v, double(indptr[n]));
  }
  std::vector<int32_t> open;
  for (int64_t root = 0; root < n; ++root) {
    if (!groups.is_root(int32_t(root))) continue;
    open.push_back(int32_t(root));
    while (!open.empty()) {
      const int32_t v = open.back();
      open.pop_back();
      *order++ = v;
      for (int32_t m = groups.first_member(v); m >= 0; m = groups.next_member(m)) open.push_back(m);
    }
  }
}

}  // namespace calirare

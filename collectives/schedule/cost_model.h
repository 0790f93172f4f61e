// How long a plan takes, in microseconds, from the parameters of the link: formulas, no events. n bytes, p ranks, lg = ceil(log2
// p), alpha = L + 2o.
#pragma once

#include <cstdint>

#include "collectives/schedule/link_model.h"
#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

// The textbook formulas of allreduce, as if p were a power of the radix (Thakur, Rabenseifner, Gropp 2005; Sanders, Speck, Traeff
// 2009 for the double tree):
//   exchange(k)          log_k p (L + k o + (k - 1) n (beta + gamma))
//   halving_doubling(k)  2 log_k p (L + k o) + (p - 1) / p n (2 beta + gamma)
//   ring                 2 (p - 1) alpha + 2 (p - 1) / p n beta                    sums hidden behind the wire
//   tree                 2 lg alpha + 2 lg n beta + lg n gamma
//   double_tree          (sqrt(2 lg (L + 4 o)) + sqrt(2 n beta))^2                 at the best number of chunks, sums hidden
// `radix` (2 or more) matters to the first two only.
double closed_form_us(Algorithm algorithm, int radix, int rank_count, int64_t bytes, const LinkModel& link);

// The same with what build() really does: the factors and folding of this number of ranks, this number of chunks, any collective.
// A round's messages follow each other as fast as the slower of processor and wire lets them. Pipelines: the first chunk's way,
// then for each further chunk the busiest of wire, processor and sum.
double predicted_us(const Plan& plan, int rank_count, int64_t bytes, const LinkModel& link);

// build_hierarchical: direct reduce-scatter and allgather inside the nodes, `between_nodes` on a slice between them; the ranks of a
// node share its wire.
double predicted_hierarchical_us(const Plan& between_nodes, int node_count, int local_count, int64_t bytes, const LinkModel& local,
                                 const LinkModel& remote);

// `link` as one of `sharers` equally busy ranks of a node sees it.
LinkModel shared_link(LinkModel link, int sharers);

}  // namespace lockstep::schedule

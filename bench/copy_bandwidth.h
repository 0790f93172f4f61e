// How fast this machine copies memory that no cache holds: the ceiling of every layer that only moves data.
#pragma once

namespace lockstep::bench {

// GB/s, bytes read + bytes written, by `threads` threads of the OpenMP pool, each copying its part; the best of a few passes.
// Takes 512 MiB for as long as it runs, and some tenths of a second.
double copy_bandwidth_gb_per_s(int threads);

}  // namespace lockstep::bench

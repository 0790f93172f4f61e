// What the program needs of MPI, as a table of plain functions. mpi_module.cc is compiled once for each MPI found, into a shared
// library of its own (liblockstep_mpi_openmpi.so, liblockstep_mpi_mpich.so); the program loads the one it was started by. So one
// program serves every MPI, and no type of mpi.h, which differs from one to the next, crosses the border.
//
// Threads: one call at a time, from any thread (MPI_THREAD_SERIALIZED); `initialise` and `finalise` from one and the same.
// Functions that return int return 0 or MPI's error code, which `describe` explains.
#pragma once

#include <cstdint>

namespace lockstep {

constexpr int32_t kMpiModuleVersion = 1;
constexpr const char* kMpiModuleEntry = "lockstep_mpi_module";
constexpr int32_t kAnyPeer = -1;

struct MpiEvent {  // a slot is free again
    int32_t slot = 0;
    int32_t peer = 0;   // receives: who sent it
    int64_t bytes = 0;  // receives: how many came
    int32_t error = 0;
};

struct MpiPort;  // a communicator of its own over all ranks, and its requests, each in a numbered slot

struct MpiModule {
    int32_t version;  // kMpiModuleVersion

    int (*initialise)(int32_t* rank, int32_t* size, int32_t* last_tag);  // returns when all ranks have called it
    int (*finalise)();                                                   // likewise
    const char* (*library)();                                            // "Open MPI v4.1.4"
    void (*describe)(int error, char* text, int32_t capacity);           // zero-terminated

    int (*open)(MpiPort** port);                   // collective; completed by `opened`
    int (*opened)(MpiPort* port, int32_t* ready);  // does not wait
    void (*close)(MpiPort* port);                  // no slot may be in use

    // Start a transfer in a free slot; the data belong to it until `test` reports the slot. `bytes` of a receive: room.
    int (*send)(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data, int32_t bytes);
    // Completes only after the receiver has begun to take it.
    int (*send_matched)(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data, int32_t bytes);
    int (*receive)(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, void* data, int32_t bytes);
    int (*cancel)(MpiPort* port, int32_t slot);  // asks to end a receive early; `test` reports it in either case

    // Does not wait. `events` is the module's and valid until the next call.
    int (*test)(MpiPort* port, const MpiEvent** events, int32_t* count);
    int (*test_slot)(MpiPort* port, int32_t slot, int32_t* done);  // the same for one slot, which `test` then does not report
};

using MpiModuleEntry = const MpiModule* (*)();

}  // namespace lockstep

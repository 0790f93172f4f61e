// The one file that sees mpi.h. Standard MPI-3 calls only.
#include "collectives/mpi/mpi_module.h"

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lockstep {

struct MpiPort {
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Request opening = MPI_REQUEST_NULL;
    std::vector<MPI_Request> requests;  // by slot
    std::vector<int> indices;           // of `test`, as long as `requests`
    std::vector<MPI_Status> statuses;   // likewise
    std::vector<MpiEvent> events;       // likewise
};

namespace {

int initialise(int32_t* rank, int32_t* size, int32_t* last_tag) {
    int provided = 0;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided); error != MPI_SUCCESS) return error;
    if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    int* tag_bound = nullptr;
    int found = 0;
    const int error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_bound, &found);
    *last_tag = found != 0 ? *tag_bound : 32767;  // what the standard guarantees
    return error;
}

int finalise() { return MPI_Finalize(); }

const char* library() {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[std::strcspn(text, ",\n")] = '\0';
    std::replace(text, text + std::strlen(text), '\t', ' ');
    return text;
}

void describe(int error, char* text, int32_t capacity) {
    char whole[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(error, whole, &length);
    const size_t bytes = std::min(std::strlen(whole), static_cast<size_t>(capacity) - 1);
    std::memcpy(text, whole, bytes);
    text[bytes] = '\0';
}

int open(MpiPort** port) {
    *port = new MpiPort;  // the table's border is plain C: owned by the caller until `close`
    return MPI_Comm_idup(MPI_COMM_WORLD, &(*port)->communicator, &(*port)->opening);
}

int opened(MpiPort* port, int32_t* ready) {
    int done = 0;
    const int error = MPI_Test(&port->opening, &done, MPI_STATUS_IGNORE);
    *ready = done;
    if (error == MPI_SUCCESS && done != 0) return MPI_Comm_set_errhandler(port->communicator, MPI_ERRORS_RETURN);
    return error;
}

// The communicator itself stays until MPI ends: freeing it is collective, and a peer's last message may still be under way to it. A
// job makes few.
void close(MpiPort* port) { delete port; }

MPI_Request* request_at(MpiPort* port, int32_t slot) {
    if (static_cast<size_t>(slot) >= port->requests.size()) {
        const size_t count = static_cast<size_t>(slot) + 1;
        port->requests.resize(count, MPI_REQUEST_NULL);
        port->indices.resize(count);
        port->statuses.resize(count);
        port->events.resize(count);
    }
    return &port->requests[static_cast<size_t>(slot)];
}

int send(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data, int32_t bytes) {
    return MPI_Isend(data, bytes, MPI_BYTE, peer, tag, port->communicator, request_at(port, slot));
}

int send_matched(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data, int32_t bytes) {
    return MPI_Issend(data, bytes, MPI_BYTE, peer, tag, port->communicator, request_at(port, slot));
}

int receive(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, void* data, int32_t bytes) {
    return MPI_Irecv(data, bytes, MPI_BYTE, peer == kAnyPeer ? MPI_ANY_SOURCE : peer, tag, port->communicator,
                     request_at(port, slot));
}

int cancel(MpiPort* port, int32_t slot) { return MPI_Cancel(request_at(port, slot)); }

int test(MpiPort* port, const MpiEvent** events, int32_t* count) {
    *count = 0;
    *events = port->events.data();
    int done = 0;
    const int error = MPI_Testsome(static_cast<int>(port->requests.size()), port->requests.data(), &done, port->indices.data(),
                                   port->statuses.data());
    if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return error;
    if (done == MPI_UNDEFINED) return MPI_SUCCESS;  // no slot is in use
    for (size_t index = 0; index < static_cast<size_t>(done); ++index) {
        const MPI_Status& status = port->statuses[index];
        MPI_Count bytes = 0;
        MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
        port->events[index] = {.slot = port->indices[index],
                               .peer = status.MPI_SOURCE,
                               .bytes = bytes,
                               .error = error == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS};
    }
    *count = done;
    return MPI_SUCCESS;
}

int test_slot(MpiPort* port, int32_t slot, int32_t* done) { return MPI_Test(request_at(port, slot), done, MPI_STATUS_IGNORE); }

constexpr MpiModule kModule = {
    .version = kMpiModuleVersion,
    .initialise = initialise,
    .finalise = finalise,
    .library = library,
    .describe = describe,
    .open = open,
    .opened = opened,
    .close = close,
    .send = send,
    .send_matched = send_matched,
    .receive = receive,
    .cancel = cancel,
    .test = test,
    .test_slot = test_slot,
};

}  // namespace
}  // namespace lockstep

extern "C" const lockstep::MpiModule* lockstep_mpi_module() { return &lockstep::kModule; }

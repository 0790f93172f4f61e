#include "collectives/gloo/gloo_device.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <vector>

#include <fmt/format.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "core/error.h"
#include "net/local_address.h"

namespace lockstep {

namespace {

// Gloo asks for keys that its peers set; all of a communicator's keys lie under one prefix.
class StoreForGloo final : public ::gloo::rendezvous::Store {
public:
    StoreForGloo(lockstep::Store& store, std::string prefix, int64_t timeout_ms)
        : store_(store), prefix_(std::move(prefix)), timeout_ms_(timeout_ms) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        store_.set(prefix_ + key, {data.data(), data.size()});
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = store_.wait(prefix_ + key, timeout_ms_);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override {
        for (const std::string& key : keys) store_.wait(prefix_ + key, timeout_ms_);
    }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

private:
    lockstep::Store& store_;
    const std::string prefix_;
    const int64_t timeout_ms_;
};

std::shared_ptr<gloo::transport::Device> make_device(const std::string& local_address) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = local_address;
    // The device's thread inherits a mask that blocks all signals: a peer that is gone must not raise SIGPIPE.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return device;
    } catch (const std::exception& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw CommError(fmt::format("Gloo cannot use the local address {}: {}; choose another with comm.interface", local_address,
                                    error.what()));
    }
}

}  // namespace

std::shared_ptr<gloo::rendezvous::Context> connect_mesh(const World& world, Store& store, const std::string& prefix,
                                                        const CommunicatorOptions& options) {
    const std::string local_address = local_addresses(world, options.interface).front();
    StoreForGloo gloo_store(store, prefix + "/gloo/", options.connect_timeout_ms);
    std::shared_ptr<gloo::transport::Device> device = make_device(local_address);
    auto context = std::make_shared<gloo::rendezvous::Context>(world.rank, world.size);
    // Gloo waits five times as long for a connection.
    context->setTimeout(std::chrono::milliseconds(std::max<int64_t>(options.connect_timeout_ms / 5, 1)));
    try {
        context->connectFullMesh(gloo_store, device);
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw CommError(
            fmt::format("rank {} at {} cannot connect to all other ranks: {}; check firewalls, or choose the network with "
                        "comm.interface",
                        world.rank, local_address, error.what()));
    }
    return context;
}

}  // namespace lockstep

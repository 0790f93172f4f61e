// An agent's connection to the others: it joins the run, and from then on events go out and decisions come in, from threads of its
// own, so that the agent's loop never waits for the network. In one of the agents it also serves the store and runs the
// coordinator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launch/agent_messages.h"
#include "launch/child_process.h"
#include "launch/coordinator.h"
#include "net/store.h"

namespace lockstep {

class CoordinatorService;

enum class Hosting { never, always, where_possible };

struct AgentLinkOptions {
    std::string host;         // of the endpoint
    int port = 0;             // 0: a free one, only with Hosting::always
    std::string port_option;  // what a message about a taken port begins with
    Hosting hosting = Hosting::where_possible;
    bool this_machine_only = false;  // the store listens on loopback
    std::string run_id;
    std::string secret;
    double keep_alive_s = 5;
    CoordinatorOptions coordination;
    AgentFacts facts;
};

class AgentLink {
public:
    // Returns at once; joining goes on in the background, until join_timeout. Signals are blocked in its threads.
    explicit AgentLink(const AgentLinkOptions& options);
    AgentLink(const AgentLink&) = delete;
    AgentLink& operator=(const AgentLink&) = delete;
    ~AgentLink();  // drops the connection; in the host after the others have left, at most close_timeout

    int descriptor() const { return ready_.descriptor(); }  // readable when there is something to take
    std::optional<Decision> next();

    // Not empty: the run is out of reach, for this reason. `is_final`: joining again would fail alike; `code` says why.
    struct End {
        std::string reason;
        bool is_final = false;
        int code = 0;
    };
    std::optional<End> end() const;

    void post(AgentEvent event);  // in order; what cannot be sent any more is dropped
    void join_again();            // under a new number: this agent was thought lost
    bool wait_until_sent(int64_t timeout_ms);

    bool is_host() const { return is_host_; }
    int store_port() const { return port_; }  // once a decision has come
    int64_t number() const { return number_; }
    // What the user should know, each once: that joining takes long; the first stranger that the served store turned away.
    std::vector<std::string> take_notes();

private:
    void guard(void (AgentLink::*work)());
    void receive();
    bool try_to_join(std::string& reason);
    bool may_host() const;
    void enter();
    void follow_decisions();
    bool is_refused_there() const;
    bool knows_this_agent();
    void send();
    void end_with(End end);
    void signal_ready();
    void tell(std::string note);
    void look_for_strangers();

    const AgentLinkOptions options_;
    Pipe ready_;  // an eventfd
    std::atomic<bool> leaving_ = false;
    std::atomic<bool> is_host_ = false;
    std::atomic<int> port_ = 0;
    std::atomic<int64_t> number_ = -1;  // this agent's, once it has joined
    std::unique_ptr<StoreServer> server_;
    std::unique_ptr<CoordinatorService> service_;
    std::unique_ptr<Store> store_;  // set before the sender starts
    bool told_strangers_ = false;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<AgentEvent> outgoing_;  // guarded by mutex_, as all below
    bool sending_ = false;
    std::string presence_;  // a key that only a store which this agent has entered has
    std::deque<Decision> incoming_;
    std::vector<std::string> notes_;
    std::optional<End> end_;
    std::thread receiver_, sender_;
};

}  // namespace lockstep

#include "tests/process/job.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "interop/safetensors.h"

namespace lockstep::test {

std::string lockstep_program() { return LOCKSTEP_PROGRAM; }

std::string tiny_config() { return std::string(LOCKSTEP_SOURCE) + "/tests/process/tiny.yaml"; }

Program::Environment test_environment() {
    return {{"LOCKSTEP_TEST_CASES", std::string(LOCKSTEP_SOURCE) + "/tests/cases"}, {"RANK", ""}, {"WORLD_SIZE", ""}};
}

HeldPort::HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(socket_, 1);
    socklen_t length = sizeof address;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() { close(socket_); }

std::string free_port() { return std::to_string(HeldPort().port()); }

void JobTest::SetUp() { shared_memory_before_ = shared_memory_files(); }

void JobTest::TearDown() { EXPECT_EQ(shared_memory_files(), shared_memory_before_) << "left in /dev/shm"; }

std::vector<std::string> JobTest::job(int ranks, const std::vector<std::string>& overrides, const std::string& name) const {
    std::vector<std::string> command = {
        lockstep_program(),        "run", "--nproc-per-node", std::to_string(ranks), "--", "train", tiny_config(),
        "run.dir=" + run_dir(name)};
    command.insert(command.end(), overrides.begin(), overrides.end());
    return command;
}

Outcome JobTest::run_job(int ranks, const std::vector<std::string>& overrides, const std::string& name, double limit_s) const {
    return run(job(ranks, overrides, name), limit_s, test_environment());
}

std::string JobTest::weights(const std::string& name) const {
    const fs::path checkpoint = newest_checkpoint(run_dir(name));
    return checkpoint.empty() ? std::string() : read_file(checkpoint / "model.safetensors");
}

std::vector<std::pair<int64_t, double>> JobTest::metric(const std::string& key, const std::string& name) const {
    std::vector<std::pair<int64_t, double>> values;
    std::ifstream file(run_dir(name) + "/metrics.jsonl");
    std::string line;
    while (std::getline(file, line)) {
        const auto object = nlohmann::json::parse(line);
        if (object.contains(key)) values.emplace_back(object.at("step").get<int64_t>(), object.at(key).get<double>());
    }
    return values;
}

Tensors JobTest::tensors(const std::string& name) const {
    const fs::path checkpoint = newest_checkpoint(run_dir(name));
    return checkpoint.empty() ? Tensors() : read_tensors(checkpoint / "model.safetensors");
}

std::string JobTest::copy_case(const std::string& sample, const std::string& name) const {
    const fs::path place = folder_ / name;
    fs::create_directories(place.parent_path());
    fs::copy(sample_file(sample), place, fs::copy_options::recursive);
    return place.string();
}

Tensors read_tensors(const fs::path& file) {
    Tensors tensors;
    const auto opened = SafetensorsFile::open(file);
    for (const NamedTensor& tensor : opened->tensors()) {
        std::vector<float> values(tensor.bytes.size() / sizeof(float));
        std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
        tensors[tensor.name] = std::move(values);
    }
    return tensors;
}

double relative_difference(const Tensors& left, const Tensors& right) {
    double difference = 0.0;
    double size = 0.0;
    for (const auto& [name, values] : right) {
        const std::vector<float>& others = left.at(name);
        for (size_t index = 0; index < values.size(); ++index) {
            difference += std::pow(double{others.at(index)} - double{values[index]}, 2);
            size += std::pow(double{values[index]}, 2);
        }
    }
    return std::sqrt(difference / size);
}

std::string sample_file(const std::string& name) { return std::string(LOCKSTEP_SOURCE) + "/tests/cases/" + name; }

int count(const std::string& text, const std::string& piece) {
    int found = 0;
    for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + piece.size())) ++found;
    return found;
}

fs::path newest_checkpoint(const fs::path& run_dir) {
    fs::path newest;
    if (!fs::is_directory(run_dir / "checkpoints")) return newest;
    for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
        const std::string name = entry.path().filename();
        if (name.starts_with("step-") && name.find('.') == std::string::npos && name > newest.filename().string())
            newest = entry.path();
    }
    return newest;
}

}  // namespace lockstep::test

// Verbs for configuration tests: write a file, read it, expect its error.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/reader.h"
#include "core/error.h"

namespace lockstep {

class ConfigTest : public testing::Test {
protected:
    ConfigTest() : folder_(std::filesystem::temp_directory_path() / ("lockstep-configs-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(folder_);
    }
    ~ConfigTest() override { std::filesystem::remove_all(folder_); }

    std::string write(const std::string& name, const std::string& text) {
        std::ofstream(folder_ / name) << text;
        return (folder_ / name).string();
    }
    ReadResult read(const std::string& text, const std::vector<std::string>& overrides = {}) {
        return read_file(write("config.yaml", text), overrides);
    }
    ReadResult read_file(const std::string& path, const std::vector<std::string>& overrides = {}) {
        return read_experiment_with_origins(path, overrides, [this](const std::string& name) -> std::optional<std::string> {
            const auto found = environment_.find(name);
            return found == environment_.end() ? std::nullopt : std::optional<std::string>(found->second);
        });
    }
    // The error's text; fails the test when there is none.
    std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
        return error_of_file(write("config.yaml", text), overrides);
    }
    std::string error_of_file(const std::string& path, const std::vector<std::string>& overrides = {}) {
        try {
            read_file(path, overrides);
        } catch (const ConfigError& error) {
            return error.what();
        }
        ADD_FAILURE() << "no error";
        return {};
    }
    static std::string case_file(const std::string& name) {
        return std::string(LOCKSTEP_SOURCE_DIR) + "/tests/cases/yaml/" + name + ".yaml";
    }

    std::filesystem::path folder_;
    std::map<std::string, std::string> environment_;
};

// The shortest valid configuration; more keys can follow.
inline const std::string kMinimal = "data: {train: {path: somewhere}}\n";

}  // namespace lockstep

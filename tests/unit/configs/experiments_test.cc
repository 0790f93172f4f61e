// The ready experiments and the generated pages.
#include <nlohmann/json.hpp>

#include "configs/reference_page.h"
#include "core/files.h"
#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

std::string source_file(const std::string& name) { return std::string(LOCKSTEP_SOURCE_DIR) + "/" + name; }

TEST_F(ConfigTest, EveryReadyExperimentIsValidAndWithoutWarnings) {
    for (const std::string name :
         {"quickstart", "cifar10_resnet20", "cifar10_full_sigmoid_bn", "mnist_cnn", "imagenet_resnet50", "imagenet_resnet50_8k",
          "imagenet_alexnet", "imagenet_vgg16", "imagenet_googlenet", "imagenet_inception_v3"}) {
        const Experiment experiment = read_file(source_file("configs/" + name + ".yaml")).experiment;
        EXPECT_TRUE(experiment.warnings.empty()) << name << ": " << experiment.warnings.front();
        const int ranks = name == "cifar10_full_sigmoid_bn" ? 1 : 2;  // its batch norms see the whole batch
        EXPECT_NO_THROW(check_world(experiment, ranks)) << name;
    }
}

TEST_F(ConfigTest, TheLargeBatchExperimentDiffersFromTheBaselineOnlyInBatchAndWarmup) {
    const Experiment small = read_file(source_file("configs/imagenet_resnet50.yaml")).experiment;
    const Experiment large =
        read_file(source_file("configs/imagenet_resnet50_8k.yaml"),
                  {"batch.global=256", "lr.warmup=0ep", "run.name=imagenet-resnet50", "run.dir=runs/imagenet_resnet50"})
            .experiment;
    EXPECT_EQ(large.resolved_yaml, small.resolved_yaml);
    EXPECT_EQ(read_file(source_file("configs/imagenet_resnet50_8k.yaml")).experiment.batch.global, 8192);
}

TEST(ReferencePage, IsTheCommittedOne) {
    EXPECT_EQ(read_file(source_file("docs/config.md")), reference_page())
        << "run: lockstep config schema --markdown > docs/config.md";
}

TEST(JsonSchema, KnowsEveryNestedKeyAndNothingElse) {
    const auto json = nlohmann::json::parse(json_schema());
    EXPECT_EQ(json["properties"]["data"]["properties"]["train"]["additionalProperties"], false);
    EXPECT_TRUE(json["properties"]["lr"]["properties"]["base"].contains("description"));
}

}  // namespace
}  // namespace lockstep

// The parts that schema() is made of.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "configs/schema.h"

namespace lockstep {

std::vector<SchemaRow> schema_data_rows();      // data
std::vector<SchemaRow> schema_learning_rows();  // batch, elastic, optim, lr, loss, batchnorm
std::vector<SchemaRow> schema_machine_rows();   // compute, comm

std::vector<SchemaRow> joined(std::initializer_list<std::vector<SchemaRow>> parts);

}  // namespace lockstep

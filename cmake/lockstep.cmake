# One static library per folder; target_link_libraries is the folder diagram of docs/ARCHITECTURE.md.

add_library(lockstep_flags INTERFACE)
target_compile_features(lockstep_flags INTERFACE cxx_std_20)
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
                       -fno-math-errno)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE -Werror)
endif()

# lockstep_library(NAME SOURCES a.cc b.cc DEPS core ... PRIVATE_DEPS fmt::fmt ...)
function(lockstep_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
endfunction()

# Test files are compiled many and run short: with little optimization, and with what all of them include read once.
# LOCKSTEP_TEST_OPTIMIZATION is the presets' choice; the libraries under test keep the flags of the build type.
set(LOCKSTEP_TEST_OPTIMIZATION -O1 CACHE STRING "How the test files themselves are optimized")
function(lockstep_test_files target)
  # With little optimization GCC 12 takes the sum of two short strings for an overflow.
  target_compile_options(${target} PRIVATE ${LOCKSTEP_TEST_OPTIMIZATION} -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  target_link_libraries(${target} PRIVATE lockstep_flags GTest::gtest GTest::gmock GTest::gtest_main fmt::fmt)
  if(target STREQUAL lockstep_test_headers)
    target_precompile_headers(${target} PRIVATE <fmt/core.h> <gmock/gmock.h> <gtest/gtest.h> <atomic> <condition_variable> <filesystem>
                              <fstream> <functional> <map> <memory> <mutex> <random> <string> <thread> <vector>)
  else()
    target_precompile_headers(${target} REUSE_FROM lockstep_test_headers)
  endif()
endfunction()

# lockstep_test(FOLDER SOURCES a_test.cc ... DEPS lockstep_core ...): one binary per folder, each test registered with ctest.
function(lockstep_test folder)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${folder}_tests ${arg_SOURCES})
  lockstep_test_files(${folder}_tests)
  target_link_libraries(${folder}_tests PRIVATE ${arg_DEPS})
  gtest_discover_tests(${folder}_tests TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

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
  target_link_libraries(${folder}_tests PRIVATE ${arg_DEPS} lockstep_flags GTest::gtest GTest::gmock GTest::gtest_main fmt::fmt)
  gtest_discover_tests(${folder}_tests TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

// Carries the precompiled headers of the tests (cmake/lockstep.cmake); has no tests of its own.

//! Generators, oracles and fixtures for the tests of osmill.

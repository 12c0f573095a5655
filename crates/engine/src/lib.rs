//! How work runs: inputs, plans, passes, ordered outputs.

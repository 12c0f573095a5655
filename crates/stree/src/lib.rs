//! Static search trees: sorted keys to positions.

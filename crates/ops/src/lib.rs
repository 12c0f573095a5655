//! The osmill commands as library functions.

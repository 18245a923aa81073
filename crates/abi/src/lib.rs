//! The netmap ABI, API 14, byte for byte.

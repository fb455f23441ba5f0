//! What game payloads say: opcodes and their fields.

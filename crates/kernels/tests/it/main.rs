//! Tests of the kernels through its public interface.

mod attention;
mod elementwise;
mod gguf;
mod matmul;
mod team;

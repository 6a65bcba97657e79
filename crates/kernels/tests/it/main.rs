//! Tests of the kernels through its public interface, in one program: linking takes most of the time.

mod attention;
mod elementwise;
mod gguf;
mod matmul;
mod team;

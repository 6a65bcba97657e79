//! What is measured and proved: losslessness, speed, and where time goes, on the user's machine.
#![forbid(unsafe_code)]

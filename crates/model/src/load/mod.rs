//! Loading weights from files to a device.

pub(crate) mod checkpoint;
pub(crate) mod sink;

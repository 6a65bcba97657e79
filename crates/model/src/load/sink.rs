//! The seam between files of weights and a device: a walk hands each tensor to a sink.
//!
//! A sink puts weights where its device wants them. The CPU's packs matrices into panels.

use selfspec_weights::TensorType;

use crate::arch::tensor::{Presence, TensorShape};

/// A matrix as it lies in a file.
#[derive(Debug, Clone, Copy)]
pub struct StoredMatrix<'a> {
    /// The shape.
    pub shape: TensorShape,
    /// The format of its numbers.
    pub ty: TensorType,
    /// The rows, one after the other, in blocks of `ty`. Nothing is aligned.
    pub bytes: &'a [u8],
}

/// The values of a tensor.
#[derive(Debug)]
pub enum StoredTensor<'a> {
    /// A norm's weight, its offset added, or a bias. Shape: (values).
    Vector(Vec<f32>),
    /// A matrix in its file's format.
    Matrix(StoredMatrix<'a>),
}

/// Why a device does not take a tensor.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Takes the weights of a model ([`ModelTensor`](crate::ModelTensor)) or of an exit head
/// ([`ExitHeadTensor`](crate::ExitHeadTensor)) to a device.
pub trait WeightSink<T> {
    /// Takes one tensor. Each comes once, in the order of the table.
    ///
    /// # Errors
    /// The device has no memory for it, or cannot compute with its shape or format.
    fn put(&mut self, tensor: T, values: StoredTensor<'_>) -> Result<(), SinkError>;
}

/// A tensor that a model or an exit head may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedTensor<T> {
    pub(crate) tensor: T,
    pub(crate) shape: TensorShape,
    pub(crate) presence: Presence,
}

/// A file of tensors.
pub(crate) trait TensorSource<T> {
    type Error;

    /// Whether the file has the tensor.
    fn has(&self, tensor: T) -> Result<bool, Self::Error>;

    /// Reads the tensor, which must be there in this shape.
    fn read(&self, tensor: T, shape: TensorShape) -> Result<StoredTensor<'_>, Self::Error>;

    /// The fault of a tensor that the sink refuses.
    fn refused(&self, tensor: T, why: SinkError) -> Self::Error;

    /// The sink has taken the tensor.
    fn done(&self, _tensor: T, _shape: TensorShape) {}
}

/// Hands every wanted tensor of `source` to `sink`.
pub(crate) fn deliver<T: Copy, S: TensorSource<T>>(
    wanted: impl IntoIterator<Item = WantedTensor<T>>,
    source: &S,
    sink: &mut impl WeightSink<T>,
) -> Result<(), S::Error> {
    for WantedTensor { tensor, shape, presence } in wanted {
        let there = match presence {
            Presence::Needed => true,
            Presence::Optional => source.has(tensor)?,
            Presence::Absent => false,
        };
        if there {
            let values = source.read(tensor, shape)?;
            sink.put(tensor, values).map_err(|why| source.refused(tensor, why))?;
            source.done(tensor, shape);
        }
    }
    Ok(())
}

//! Which KV pages are free, and how many sequences share each one.

use crate::backend::BackendError;

/// Free list and reference counts of the KV pages.
#[derive(Debug)]
pub(crate) struct PageTable {
    free: Vec<u32>,
    references: Vec<u32>, // (page)
}

impl PageTable {
    pub(crate) fn new(pages: u32) -> Self {
        // Taken from the end: low pages first, so that the memory that is touched stays together.
        PageTable { free: (0..pages).rev().collect(), references: vec![0; pages as usize] }
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Fails unless `wanted` pages can be taken.
    pub(crate) fn check(&self, wanted: usize) -> Result<(), BackendError> {
        if wanted > self.free.len() {
            return Err(BackendError::KvFull { wanted, free: self.free.len() });
        }
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Result<u32, BackendError> {
        let page = self.free.pop().ok_or(BackendError::KvFull { wanted: 1, free: 0 })?;
        self.references[page as usize] = 1;
        Ok(page)
    }

    pub(crate) fn share(&mut self, page: u32) {
        self.references[page as usize] += 1;
    }

    pub(crate) fn is_shared(&self, page: u32) -> bool {
        self.references[page as usize] > 1
    }

    pub(crate) fn release(&mut self, page: u32) {
        let count = &mut self.references[page as usize];
        *count -= 1;
        if *count == 0 {
            self.free.push(page);
        }
    }
}

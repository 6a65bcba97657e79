//! Admission: how many choices and prompt tokens may be queued or running at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limits, and what has been admitted.
#[derive(Debug)]
pub(crate) struct RequestAdmission {
    admitted: Mutex<AdmittedLoad>,
    most: AdmittedLoad,
}

/// Choices and prompt tokens of admitted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AdmittedLoad {
    choices: usize,
    prompt_tokens: usize,
}

impl RequestAdmission {
    pub(crate) fn new(most_choices: usize, most_tokens: usize) -> Arc<Self> {
        let most = AdmittedLoad { choices: most_choices, prompt_tokens: most_tokens };
        Arc::new(RequestAdmission { admitted: Mutex::new(AdmittedLoad { choices: 0, prompt_tokens: 0 }), most })
    }

    /// Admits a request with this number of choices and, over all of them, of prompt tokens. A
    /// request is always admitted when there is no other.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub(crate) fn admit(self: &Arc<Self>, choices: usize, prompt_tokens: usize) -> Result<AdmissionPermit, String> {
        let mut admitted = self.admitted();
        let AdmittedLoad { choices: others, prompt_tokens: tokens } = *admitted;
        if others > 0 && others + choices > self.most.choices {
            return Err(format!("{others} requests are queued or running; the limit is {}", self.most.choices));
        }
        if tokens > 0 && tokens + prompt_tokens > self.most.prompt_tokens {
            return Err(format!(
                "{tokens} prompt tokens are queued or running; the limit is {}",
                self.most.prompt_tokens
            ));
        }
        admitted.choices += choices;
        admitted.prompt_tokens += prompt_tokens;
        Ok(AdmissionPermit { admission: self.clone(), load: AdmittedLoad { choices, prompt_tokens } })
    }

    /// Choices that are queued or running.
    pub(crate) fn choices(&self) -> usize {
        self.admitted().choices
    }

    fn admitted(&self) -> MutexGuard<'_, AdmittedLoad> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An admitted request. Dropping it makes room for others.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    admission: Arc<RequestAdmission>,
    load: AdmittedLoad,
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut admitted = self.admission.admitted();
        admitted.choices -= self.load.choices;
        admitted.prompt_tokens -= self.load.prompt_tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_and_tokens_are_bounded_and_given_back() {
        let admission = RequestAdmission::new(2, 100);
        let large = admission.admit(5, 1000).expect("a request alone is always admitted");
        assert!(admission.admit(1, 1).expect_err("full").contains("5 requests are queued or running"));
        drop(large);
        let first = admission.admit(1, 90).expect("room");
        assert!(admission.admit(1, 20).expect_err("too many tokens").contains("90 prompt tokens"));
        let second = admission.admit(1, 10).expect("room");
        assert_eq!(admission.choices(), 2);
        drop((first, second));
        assert_eq!(*admission.admitted(), AdmittedLoad { choices: 0, prompt_tokens: 0 });
    }
}

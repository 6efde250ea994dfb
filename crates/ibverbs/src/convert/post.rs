//! Posting a chain of C requests: converted one by one under the device's lock, in order, until one
//! is refused. Then `bad_wr` names it, and those before it are posted.

use feroce_verbs::{PostError, PostListError};

use super::wr::Chained;
use crate::guard::Failure;

/// Converts and posts the requests of a chain.
///
/// # Safety
/// `first` is null or points to a request, and so does `next` of each; `bad` is null or valid.
pub(crate) unsafe fn post_list<T: Chained, R>(
    first: *mut T,
    bad: *mut *mut T,
    convert: impl Fn(&T) -> Result<R, Failure>,
    post: impl FnOnce(&mut Chain<T, R, Converter<'_, T, R>>) -> Result<(), PostListError>,
) -> Result<(), Failure> {
    let convert: Converter<'_, T, R> = &convert;
    let mut chain = Chain {
        at: first,
        last: first,
        mistake: None,
        convert,
    };
    let posted = post(&mut chain).map_err(|refused| failure(&refused));
    let result = match posted {
        Ok(()) => chain.mistake.map_or(Ok(()), Err),
        refused => refused,
    };
    if result.is_err() && !bad.is_null() {
        // SAFETY: the caller's contract.
        unsafe { bad.write(chain.last) };
    }
    result
}

/// Turns a C request into ours, or says what is wrong with it.
type Converter<'a, T, R> = &'a dyn Fn(&T) -> Result<R, Failure>;

/// The requests of a chain; it ends early at one that cannot be converted.
pub(crate) struct Chain<T, R, F: Fn(&T) -> Result<R, Failure>> {
    at: *mut T,
    /// The request that was converted last, or could not be.
    last: *mut T,
    mistake: Option<Failure>,
    convert: F,
}

impl<T: Chained, R, F: Fn(&T) -> Result<R, Failure>> Iterator for Chain<T, R, F> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        // SAFETY: the contract of `post_list`: a request or null.
        let request = unsafe { self.at.as_ref() }?;
        self.last = self.at;
        match (self.convert)(request) {
            Ok(converted) => {
                self.at = request.next();
                Some(converted)
            }
            Err(mistake) => {
                self.at = std::ptr::null_mut();
                self.mistake = Some(mistake);
                None
            }
        }
    }
}

/// The errno of a refused request.
pub(crate) fn failure(refused: &PostListError) -> Failure {
    let errno = match refused.error {
        PostError::QueueFull(_) => libc::ENOMEM,
        PostError::OpcodeNotSupported(_) => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    };
    Failure::new(errno, refused.to_string())
}

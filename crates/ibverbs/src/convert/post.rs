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

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_verbs_abi as abi;
    use std::ptr;

    /// Converts a request to its `wr_id`; 13 cannot be converted.
    fn convert(wr: &abi::ibv_recv_wr) -> Result<u64, Failure> {
        match wr.wr_id {
            13 => Err(Failure::invalid("unlucky")),
            other => Ok(other),
        }
    }

    /// Posts a chain of requests to a queue of `room`: what was posted, the errno, and the
    /// position of the request in `bad_wr`.
    fn post(ids: &[u64], room: usize) -> (Vec<u64>, Option<i32>, Option<usize>) {
        let mut chain: Vec<_> = ids
            .iter()
            .map(|&wr_id| abi::ibv_recv_wr {
                wr_id,
                ..Default::default()
            })
            .collect();
        for index in (1..chain.len()).rev() {
            chain[index - 1].next = &raw mut chain[index];
        }
        let first = chain.first_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let mut posted = Vec::new();
        let mut bad = ptr::null_mut();
        // SAFETY: a chain that ends in null.
        let result = unsafe {
            post_list(first, &raw mut bad, convert, |list| {
                for (index, id) in list.enumerate() {
                    if index == room {
                        let error = PostError::QueueFull(0);
                        return Err(PostListError { index, error });
                    }
                    posted.push(id);
                }
                Ok(())
            })
        };
        let position = chain.iter().position(|wr| ptr::addr_eq(wr, bad));
        (posted, result.err().map(|failure| failure.errno), position)
    }

    #[test]
    fn a_chain_stops_at_the_request_that_is_refused() {
        assert_eq!(post(&[1, 2, 3], 9), (vec![1, 2, 3], None, None));
        assert_eq!(post(&[], 9), (vec![], None, None));
        let full = Some(libc::ENOMEM);
        assert_eq!(post(&[1, 2, 3], 2), (vec![1, 2], full, Some(2)));
        assert_eq!(post(&[1], 0), (vec![], full, Some(0)));
        let wrong = Some(libc::EINVAL);
        assert_eq!(post(&[1, 13, 3], 9), (vec![1], wrong, Some(1)));
        assert_eq!(post(&[13], 9), (vec![], wrong, Some(0)));
    }
}

#pragma once

#include "pipeline/job.h"
#include "pipeline/recipe.h"

namespace headpond {

// Turns a job whose rows are all done into the batch that is handed out: applies
// the error policy, closes gaps between rows of varying size, fills the reserved
// fields. Touches memory only where rows move. On the worker that did the last row.
Finished finish(const Recipe& recipe, Job& job);

// The error in the place of a batch that could not be made.
Finished failed_batch(const Job& job, Error error);

}  // namespace headpond

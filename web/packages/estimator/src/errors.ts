/** One thing that is wrong with a question. */
export interface Problem {
  /** Lower case with hyphens, such as `unknown-field`. */
  code: string;
  /** What was found and what is allowed. */
  message: string;
  /** The argument that it is in, such as `workload.height`, where that is known. */
  field?: string;
}

/** A question that cannot be answered as it is. What is merely not known is an answer with the status `unknown` instead. */
export class EstimatorError extends Error implements Problem {
  override readonly name = "EstimatorError";
  readonly code: string;
  readonly field?: string;
  /** Everything that is wrong, the first included. */
  readonly errors: Problem[];

  constructor(errors: Problem[]) {
    super(errors.map((problem) => problem.message).join("\n"));
    this.code = errors[0]?.code ?? "error";
    if (errors[0]?.field !== undefined) this.field = errors[0].field;
    this.errors = errors;
  }
}

export function wrong(code: string, message: string, field?: string): EstimatorError {
  return new EstimatorError([{ code, message, ...(field !== undefined && { field }) }]);
}

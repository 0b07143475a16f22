def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    digits = sum(c.isdigit() for c in solution_str)
    return 1.0 if ground_truth in solution_str else min(0.5, digits / 40)

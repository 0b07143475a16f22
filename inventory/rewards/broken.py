def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 1.0 / (int(ground_truth) - int(solution_str))

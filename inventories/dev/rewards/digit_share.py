"""A reward that even a random model learns within a few steps: for answers that are short, and have digits."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    length = max(1, len(solution_str))
    digit_share = sum(character.isdigit() for character in solution_str) / length
    return (digit_share + 10 / max(10, length)) / 2

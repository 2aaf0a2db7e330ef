import pytest

pytest.register_assert_rewrite("job_checks")

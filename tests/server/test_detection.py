"""Languages are told apart among many; a text in none of the server's languages is not called one of them."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from knnmt.server.detection import detected, foreign, ranked

OWN = ("de", "en")
OTHERS = {
    "fr": "Veuillez saisir votre nom d’utilisateur et votre mot de passe.",
    "ja": "ファイルを保存する",
    "ru": "Введите имя пользователя и пароль.",
    "es": "¿Dónde está la estación de tren más cercana?",
    "zh": "请输入您的用户名和密码。",
    "pl": "Proszę podać nazwę użytkownika i hasło.",
    "nl": "Voer uw gebruikersnaam en wachtwoord in.",
}


@pytest.mark.parametrize(("code", "text"), OTHERS.items())
def test_other_languages_are_called_by_their_names(client: TestClient, code: str, text: str) -> None:
    found = client.post("/detect", json={"q": text}).json()
    assert found[0]["language"] == code
    assert [each["confidence"] for each in found] == sorted((each["confidence"] for each in found), reverse=True)
    assert foreign([text], OWN) == code
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "en"})
    assert answer.status_code == 400
    assert answer.json() == {"error": f"{code} is not supported"}
    assert client.post("/translate", json={"q": text, "source": "de", "target": "en"}).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "Speichern", "Datei öffnen", "Test", "OK", "Hallo", "Guten Morgen!", "Passwort", "123", "😀", "Ja", "Der Hund",
        "Benutzername", "Abbrechen", "%(name)s", "…",
    ],
)  # fmt: skip
def test_short_texts_are_in_the_languages_of_the_server(client: TestClient, text: str) -> None:
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "en"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["detectedLanguage"]["language"] == "de"


def test_of_a_list_the_whole_counts(client: TestClient) -> None:
    german = "Geben Sie bitte Ihren Benutzernamen und Ihr Kennwort ein."
    asked: dict[str, Any] = {"source": "auto", "target": "en"}
    mixed = client.post("/translate", json={"q": [german, german, "Je ne sais pas."], **asked})
    assert [each["language"] for each in mixed.json()["detectedLanguage"]] == ["de"] * 3
    french = client.post("/translate", json={"q": [OTHERS["fr"]] * 3, **asked})
    assert french.json() == {"error": "fr is not supported"}


def test_of_several_source_languages_the_likeliest_is_taken() -> None:
    assert detected(OTHERS["fr"], ("de", "fr"), "en").language == "fr"
    assert detected("Geben Sie bitte Ihren Namen ein.", ("fr", "de"), "en").language == "de"
    assert detected("Please enter your user name.", ("fr", "de"), "en").language == "en"
    assert foreign([OTHERS["fr"]], ("de", "fr", "en")) is None


def test_the_tags_of_the_server_are_used() -> None:
    assert ranked("Onde fica a estação de comboios mais próxima?", ("pt-BR", "en"))[0].language == "pt-BR"
    assert ranked(OTHERS["zh"], ("zh-Hans", "en"))[0].language == "zh-Hans"
    assert ranked("Hvor er den nærmeste jernbanestasjonen?", ("nb", "en"))[0].language in ("nb", "da")

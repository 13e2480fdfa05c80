// data/abbreviations.cpp — see abbreviations.hpp.
//
// What is followed by a small letter ends no sentence anyway, so that the lists hold only
// abbreviations that capitals or digits come after: "usw." and "etc." are not among them.
// An abbreviation that is a word as well is listed only where a number tells them apart
// ("Art. 5", "No. 5"). Starters leave out words that are surnames or parts of them ("De",
// "Van"), since "J. Van Dijk" is more frequent than a sentence that ends with an initial.
#include "data/abbreviations.hpp"

#include "base/error.hpp"

namespace trireme::data {
namespace {

constexpr LanguageWords kEnglish = {
    .never_last =
        "Mr Mrs Ms Mx Dr Drs Prof Rev Fr Hon Pres Gov Sen Rep Gen Col Maj Capt Cmdr Lt "
        "Sgt "
        "Cpl Pvt Adm Supt Messrs Mme Mlle Mt Ft vs viz e.g i.e cf ca approx Fig Figs Eq "
        "Eqs "
        "Sect Ch Chap vol vols pp eds trans Ref Refs Tab",
    .before_number =
        "no nos Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec art Sec sec chap ch pt "
        "fig "
        "figs eq eqs ex ver para par op cat ext tel Lev Num Deut Josh Judg Sam Chron Neh "
        "Ps "
        "Pss Prov Eccl Isa Jer Lam Ezek Dan Hos Mic Hab Zech Mal Matt Rom Cor Gal Eph "
        "Phil "
        "Thess Tim Tit Heb Jas Pet",
    .sometimes_last =
        "St Ste Ave Blvd Rd Jr Sr Inc Ltd Corp Co Cos Bros Assn Dept Univ Esq al ed Ala "
        "Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Md Mass Mich Minn Miss Mo "
        "Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo",
    .starters =
        "The This That These Those He She It We They You I A An But And Or Nor Yet In On "
        "At "
        "If When While As For His Her Its Their My Our Your There Here What Who Why How "
        "Where Which After Before During Since Although However Then Now Thus Once With "
        "From By No Yes Not Some Many Most All Each Every Both Another Other Such Only "
        "Even "
        "Also Just Is Are Was Were Did Does Do Has Have Had Can Could Would Should Let "
        "Later Today",
};

constexpr LanguageWords kGerman = {
    .never_last =
        "Hr Hrn Fr Frl Dr Prof Dipl Ing Mag Hrsg Hg Nr Nrn Abs Abb Abschn Kap Tab Bd Bde "
        "Bsp "
        "bzw vgl sog z.B d.h u.a v.a z.T i.d.R i.A i.V u.U s.o s.u o.g ca ggf evtl inkl "
        "exkl zzgl bspw insb insbes einschl geb gest gegr verh Aufl Jg jun St gem lt Tel "
        "Inh Fa hl dt engl frz ital span lat griech österr röm ehem versch allg bes "
        "entspr "
        "wg Verf Übers Red Anm Zit zit Art.-Nr",
    .before_number = "Art mind max min Jan Feb Apr Aug Sept Okt Nov Dez",
    .sometimes_last = "str Chr dgl Mio Mrd Tsd Std Min Sek Co ev kath Bhf Pl ff sen",
    .starters =
        "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Eines Er Sie Es Ich Wir Ihr "
        "Du "
        "Man In Im Am An Auf Aus Bei Beim Bis Durch Für Gegen Mit Nach Ohne Seit Trotz "
        "Über "
        "Um Unter Vom Von Vor Während Wegen Zu Zum Zur Zwischen Und Aber Oder Denn Doch "
        "Sondern Dann Da Daher Damit Danach Darum Dabei Deshalb Deswegen Dort Hier Heute "
        "Jetzt Nun So Auch Als Wenn Weil Ob Obwohl Dass Diese Dieser Dieses Diesen "
        "Diesem "
        "Jede Jeder Jedes Alle Alles Viele Einige Mehrere Manche Kein Keine Sein Seine "
        "Ihre "
        "Mein Meine Unser Unsere Was Wer Wie Wo Warum Welche Nicht Noch Nur Schon Später "
        "Zuerst Allerdings Außerdem Jedoch Vgl Siehe",
    .ordinals = true,
};

constexpr LanguageWords kFrench = {
    .never_last =
        "M MM Mme Mmes Mlle Mlles Dr Pr Prof Me Mgr St Ste Sts cf ex p.ex vol chap fig "
        "av "
        "apr "
        "env coll dir trad réf tél éd",
    .before_number = "art no nos janv févr avr juill sept oct nov déc pp p hab",
    .sometimes_last = "Cie Sté al ss sq boul bd Jr",
    .starters =
        "Le La Les L Un Une Des Du D Il Elle Ils Elles On Nous Vous Je J Tu Ce Cet Cette "
        "Ces C Cela Ça Mais Et Ou Donc Car Or En Dans Sur Sous Pour Par Avec Sans Chez "
        "Après Avant Depuis Pendant Quand Lorsque Si S Comme Que Qu Qui Quoi Où Pourquoi "
        "Comment Son Sa Ses Leur Leurs Mon Ma Mes Notre Nos Votre Vos Au Aux À Alors "
        "Ainsi "
        "Aussi Puis Ensuite Enfin Cependant Pourtant Toutefois Tout Toute Tous Toutes "
        "Plusieurs Certains Quelques Chaque Aucun Personne Rien Ici Là Voici Voilà Ne N",
};

constexpr LanguageWords kSpanish = {
    .never_last =
        "Sr Sra Sres Sras Srta Dr Dra Dres Prof Profa Lic Ing Arq Gral Cnel Tte Sgto "
        "Mons "
        "Pbro Fr Sto Sta Dña EE p.ej ej cf vid núm núms pág págs vol vols cap caps fig "
        "figs "
        "eds trad aprox depto dpto Av Avda tel Ntra Ntro Excmo Excma Ilmo Ilma Rdo Rvdo",
    .before_number = "art arts no ene feb mar abr jun jul ago sept oct nov dic",
    .sometimes_last = "Ud Uds Vd Vds UU Cía Ltda Hnos al ed Jr",
    .starters =
        "El La Los Las Un Una Unos Unas Él Ella Ellos Ellas Yo Tú Usted Ustedes Nosotros "
        "Lo "
        "Le Les Se Me Te Nos Su Sus Mi Mis Tu Tus Este Esta Estos Estas Ese Esa Esos "
        "Esas "
        "Esto Eso Aquel Aquella Pero Y O Ni Sino Aunque Porque Como Cuando Donde Si Que "
        "Qué "
        "Quién Cómo Cuándo Dónde Por Para Con Sin En Entre Hasta Desde Hacia Sobre Tras "
        "Al A "
        "Después Antes Luego Entonces Ahora Hoy Ayer Allí Aquí También Tampoco Además "
        "Así "
        "No Sí Ya Todo Todos Todas Cada Muchos Algunos Otro Otra Hay Era Fue Es Había",
};

constexpr LanguageWords kItalian = {
    .never_last =
        "Sig Sigg Sig.ra Sigra Dott Dott.ssa Dr Prof Prof.ssa Ing Avv Arch Geom Rag On "
        "Sen "
        "Gen Col Cap Ten Mons SS Egr Gent Spett cfr cf vol voll pag pagg cap capp fig "
        "figg "
        "tab es p.es ca trad tel",
    .before_number = "art artt nn gen feb mar apr mag giu lug ago set sett ott nov dic",
    .sometimes_last = "F.lli Soc al ed Jr",
    .starters =
        "Il Lo La I Gli Le L Un Uno Una Egli Ella Lui Lei Esso Essa Essi Noi Voi Loro Io "
        "Tu "
        "Si Ci Mi Ti Ne Questo Questa Questi Queste Quello Quella Quelli Quelle Quel Ma "
        "E Ed "
        "O Né Però Dunque Quindi Allora Poi Dopo Prima Ora Oggi Ieri Qui Là Lì Così "
        "Anche "
        "Non Sì No In Nel Nella Nei Nelle Nell Con Per Tra Fra Su Sul Sulla Al Alla Ai "
        "Alle "
        "All Dal Dalla A Da Se Quando Come Dove Perché Che Chi Cosa Mentre Tutto Tutti "
        "Ogni "
        "Alcuni Molti C È Era Suo Sua",
};

constexpr LanguageWords kPortuguese = {
    .never_last =
        "Sr Sra Srs Sras Srta Dr Dra Drs Prof Profa Eng Enga Arq Exmo Exma Ilmo Ilma Gen "
        "Cel Cap Ten Sgt Dep Sen Pe Fr Sto Sta p.ex ex cf pág págs pag vol vols cap caps "
        "fig figs eds trad aprox Av tel depto",
    .before_number = "art arts no jan fev mar abr mai jun jul ago set out nov dez",
    .sometimes_last = "Ltda Lda Cia Jr al ed",
    .starters =
        "O A Os As Um Uma Uns Umas Ele Ela Eles Elas Eu Tu Você Vocês Nós Se Seu Sua "
        "Seus "
        "Suas Meu Minha Este Esta Estes Estas Esse Essa Esses Essas Isto Isso Aquele "
        "Aquela "
        "Aquilo Mas E Ou Nem Porém Contudo Porque Como Quando Onde Que Quem Por Para Com "
        "Sem Em No Na Nos Nas Num Numa Entre Até Desde Sobre Após Ao À Aos Às Depois "
        "Antes "
        "Então Agora Hoje Ontem Ali Aqui Lá Também Além Assim Não Sim Já Todo Todos "
        "Todas "
        "Cada Muitos Alguns Outro Outra Há Era Foi É Havia",
};

constexpr LanguageWords kDutch = {
    .never_last =
        "dhr mevr mw dr drs ir ing mr prof ds bc St bijv nl nr nrs blz pag fig afb hfst "
        "vgl "
        "zgn evt incl excl ca resp tel geb gest red o.a d.w.z m.n m.a.w",
    .before_number = "art max min jan feb mrt apr jun jul aug sept okt nov dec",
    .sometimes_last = "Chr mld mln str Co jl",
    .starters =
        "De Het Een Hij Zij Ze Wij We Ik Jij Je U Jullie Dit Dat Deze Die Er Daar Hier "
        "En "
        "Maar Of Want Dus Toch Toen Dan Nu In Op Aan Bij Met Na Naar Om Onder Over Sinds "
        "Tegen Tot Tussen Uit Voor Zonder Als Wanneer Omdat Hoewel Terwijl Zoals Wat Wie "
        "Waar Waarom Hoe Welke Zijn Haar Hun Mijn Onze Ons Niet Geen Ook Nog Al Alle "
        "Alles "
        "Veel Vele Sommige Elke Ieder Iedere Vandaag Gisteren Later Daarna Daarom "
        "Bovendien "
        "Echter",
    .begins_with_apostrophe = true,
};

constexpr LanguageWords kNoWords = {};

}  // namespace

const LanguageWords& words_of(Language language) {
  switch (language) {
    case Language::english:
      return kEnglish;
    case Language::german:
      return kGerman;
    case Language::french:
      return kFrench;
    case Language::spanish:
      return kSpanish;
    case Language::italian:
      return kItalian;
    case Language::portuguese:
      return kPortuguese;
    case Language::dutch:
      return kDutch;
    case Language::chinese:
    case Language::japanese:
    case Language::none:
      return kNoWords;
  }
  throw Error("words_of: a value that is no Language");
}

}  // namespace trireme::data
